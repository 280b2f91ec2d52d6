//! Frames that are no events, kept in a file as JSON Lines: `{"reason":"no JSON object","frame":"..."}`.

use hashfold::{
    Error, Place, Result,
    io::{Disk as _, OsDisk, create_durable_folder},
    pipeline::RejectedSink,
};
use hashfold_rows::write_json_bytes;
use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

/// A file of frames, to which others are appended.
#[derive(Debug)]
pub(crate) struct RejectedFile {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
    /// Whether a line was written since the last sync.
    is_unsynced: bool,
}

impl RejectedFile {
    /// Opens the file, or creates it and its folder. A last line that a crash has cut short is ended.
    pub(crate) fn open(path: PathBuf) -> Result<RejectedFile> {
        let open = || {
            let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
            if file.metadata()?.len() > 0 {
                let mut last = [0];
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    file.write_all(b"\n")?;
                }
            }
            Ok(file)
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        create_durable_folder(&OsDisk, folder)?;
        let file = open().map_err(|error| failed("open", &path, error))?;
        OsDisk.sync_folder(folder)?;
        Ok(RejectedFile { path, file, line: Vec::new(), is_unsynced: true })
    }
}

fn failed(action: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::io(action, error).at(&Place::file(path))
}

impl RejectedSink for RejectedFile {
    fn rejected(&mut self, frame: &[u8], reason: &'static str) -> Result<()> {
        self.line.clear();
        self.line.extend_from_slice(b"{\"reason\":");
        write_json_bytes(reason.as_bytes(), &mut self.line);
        self.line.extend_from_slice(b",\"frame\":");
        write_json_bytes(frame, &mut self.line);
        self.line.extend_from_slice(b"}\n");
        self.is_unsynced = true;
        self.file.write_all(&self.line).map_err(|error| failed("write", &self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        if !self.is_unsynced {
            return Ok(());
        }
        self.is_unsynced = false;
        match self.file.sync_data() {
            // A pipe, which keeps nothing.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            synced => synced.map_err(|error| failed("sync", &self.path, error)),
        }
    }
}
