//! A web server as a source: versions and the pointer are read through HTTP, and nothing is written.

use crate::{
    fixture::{Scene, node, one_lane},
    naive::Naive,
};
use hashfold::work::Watch;
use hashfold_deploy::{Controller, ErrorKind, FetchOptions, PublishOptions, Remote, When, fetch};
use std::{
    io::{BufRead as _, BufReader, Result, Write as _},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

/// A naive web server over a set of objects: GET with ranges and ETags.
struct Server<'a> {
    naive: &'a Naive,
    is_over: AtomicBool,
    /// Number of answers by which the client learned that nothing has changed.
    unchanged: AtomicU64,
}

impl Server<'_> {
    fn serve(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_over.load(SeqCst) {
                return;
            }
            // A client that goes away is no failure of the server.
            let _ = stream.and_then(|stream| self.answer(stream));
        }
    }

    /// Answers one request, and closes the connection.
    fn answer(&self, mut stream: TcpStream) -> Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        let (mut range, mut known) = (None, None);
        for line in lines {
            let line = line?.to_lowercase();
            let Some((name, value)) = line.split_once(": ") else { break };
            match name {
                "range" => range = value.strip_prefix("bytes=").map(str::to_owned),
                "if-none-match" => known = Some(value.to_owned()),
                _ => {}
            }
        }
        let name = request.split(' ').nth(1).unwrap_or_default().trim_start_matches("/files/");
        let status = match self.naive.names().iter().any(|known| known == name) {
            false => "404 Not Found".to_owned(),
            true => {
                let bytes = self.naive.bytes(name);
                let tag = format!("\"{:016x}\"", hashfold::checksum::crc32c(&bytes));
                let size = bytes.len();
                if known.as_ref() == Some(&tag) {
                    self.unchanged.fetch_add(1, SeqCst);
                    format!("304 Not Modified\r\nETag: {tag}")
                } else {
                    let (start, end) = range
                        .as_ref()
                        .and_then(|range| range.split_once('-'))
                        .map_or((0, size), |(start, end)| {
                            (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1)
                        });
                    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
                    let end = end.min(size);
                    write!(
                        stream,
                        "HTTP/1.1 {status}\r\nETag: {tag}\r\nContent-Length: {}\r\nContent-Range: \
                         bytes {start}-{}/{size}\r\nConnection: close\r\n\r\n",
                        end - start,
                        end - 1,
                    )?;
                    return stream.write_all(&bytes[start..end]);
                }
            }
        };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }
}

#[test]
fn a_web_server_is_a_source_of_versions_and_takes_no_writes() {
    let scene = Scene::new(1, 200_000);
    scene.push(1);
    let publish = |remote: &Remote| {
        let controller = Controller::new(&scene.env, remote, "main", "eve").unwrap();
        let versions = [("people".to_owned(), 1)];
        controller.publish(&versions, &PublishOptions::default(), &Watch::default())
    };
    publish(&scene.remote).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        naive: &scene.naive,
        is_over: AtomicBool::new(false),
        unchanged: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&listener));
        let remote = Remote::open(&scene.env, &format!("http://{address}/files")).unwrap();
        let controller = Controller::new(&scene.env, &remote, "main", "eve").unwrap();
        assert_eq!(controller.pointer().unwrap().stores["people"].version, 1);
        assert!(!remote.has_listings() && scene.remote.has_listings());
        let status = controller.status().unwrap();
        assert_eq!((status.pointer.seq, status.nodes.len()), (1, 0));
        let watch = Watch::default();
        let options = FetchOptions { lanes: 3, ..one_lane() };
        let fetched = fetch(&scene.env, &remote, "people", 1, node(), &options, &watch).unwrap();
        assert!(fetched.bytes > 6_000_000);
        scene.check(node(), 1);
        let name = "groups/main/CURRENT";
        let tag = remote.objects().get(name, 1 << 20, None).unwrap().object().unwrap().tag;
        remote.objects().get(name, 1 << 20, Some(&tag)).unwrap();
        assert_eq!(server.unchanged.load(SeqCst), 1);
        for written in [
            remote.objects().put(name, b"x", When::Always).map(drop),
            remote.objects().remove(name),
            controller.mark_bad("people", 1, "").map(drop),
        ] {
            let error = written.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ReadOnly), "{error}");
        }
        let error = fetch(&scene.env, &remote, "people", 9, node(), &options, &watch).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Absent { .. }), "{error}");
        server.is_over.store(true, SeqCst);
        drop(TcpStream::connect(address));
    });
}
