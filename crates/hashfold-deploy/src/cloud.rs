//! Object storage, HTTP servers and HDFS as remotes, through the crate `object_store`.

use crate::{
    error::{Error, ErrorKind, Result},
    objects::{Found, Listed, Object, Objects, Parts, Tag, When},
};
use futures_util::TryStreamExt as _;
use hashfold::work::lower_priority;
use object_store::{
    ClientOptions, Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt as _,
    ObjectStoreScheme, PutMode, PutOptions, RetryConfig, UpdateVersion, WriteMultipart,
    aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder,
    http::HttpBuilder, path::Path,
};
use std::{env, ops::Range, sync::Arc, time::Duration};
use tokio::runtime::{Builder, Runtime};
use url::{Position, Url};

/// Threads that wait for the network. Bytes are hashed and written by the threads of the caller.
const THREADS: usize = 2;
/// Minimum size of a part of an upload, in bytes; S3 refuses parts below 5 MiB.
const PART_SIZE_MIN: u64 = 8 << 20;
/// Maximum number of parts of an upload; S3 refuses more than 10,000.
const PARTS_MAX: u64 = 9000;
/// Maximum number of parts that are in flight at once.
const PARTS_AT_ONCE: usize = 4;
/// Number of times that a request is repeated; the caller decides about more.
const RETRIES: usize = 3;
/// Time after which a request is not repeated any more.
const RETRY_WAIT: Duration = Duration::from_secs(20);

/// Object storage behind a URL, with a prefix of all names.
#[derive(Debug)]
pub(crate) struct Cloud {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
    /// Whether the remote takes writes.
    can_write: bool,
    runtime: Runtime,
}

impl Cloud {
    /// Connects to a URL. Credentials, region and endpoint come from the environment: `AWS_…`,
    /// `GOOGLE_…`, `AZURE_…`.
    pub(crate) fn open(url: &Url) -> Result<Cloud> {
        // An error means that the process has chosen a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let at = |error: StoreError| Error::remote("open", error).at(url.as_str());
        let unknown = || {
            let expected = "s3://, gs://, az://, hdfs://, http://, https:// or a folder";
            Error::argument("remote", expected, url)
        };
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).on_thread_start(lower_priority).enable_all();
        let runtime = runtime.build();
        let runtime = runtime.map_err(|error| Error::remote("start threads", error))?;
        if url.scheme() == "hdfs" {
            let (store, prefix) = open_hdfs(url, &runtime)?;
            let url = url.as_str().trim_end_matches('/').to_owned();
            return Ok(Cloud { store, prefix, url, can_write: true, runtime });
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(url).map_err(|_| unknown())?;
        let retry =
            RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_WAIT, ..Default::default() };
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let s3 = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retry);
                let s3 = if has_plain_endpoint() { s3.with_allow_http(true) } else { s3 };
                Arc::new(s3.build().map_err(at)?)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let gcs = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
                Arc::new(gcs.with_retry(retry).build().map_err(at)?)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let azure = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
                Arc::new(azure.with_retry(retry).build().map_err(at)?)
            }
            ObjectStoreScheme::Http => {
                let http = HttpBuilder::new().with_url(&url[..Position::BeforePath]);
                let options = ClientOptions::new().with_allow_http(true);
                let http = http.with_client_options(options).with_retry(retry);
                Arc::new(http.build().map_err(at)?)
            }
            _ => return Err(unknown()),
        };
        let can_write = scheme != ObjectStoreScheme::Http;
        let url = url.as_str().trim_end_matches('/').to_owned();
        Ok(Cloud { store, prefix, url, can_write, runtime })
    }

    fn path(&self, name: &str) -> Result<Path> {
        let parts = self.prefix.parts().chain(name.split('/').map(Into::into));
        let path: Path = parts.collect();
        // A part with a character that had to be escaped is not one of our names.
        match path.as_ref().ends_with(name) {
            true => Ok(path),
            false => Err(Error::argument("name of an object", "plain components", name)),
        }
    }

    fn refused(&self, action: &'static str, name: &str) -> impl FnOnce(StoreError) -> Error {
        let place = self.place(name);
        move |error| Error::remote(action, error).at(place)
    }

    fn check_writable(&self, name: &str) -> Result<()> {
        match self.can_write {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::ReadOnly).at(self.place(name))),
        }
    }

    async fn read(&self, path: &Path, size_max: u64, known: Option<&Tag>) -> Result<Found, Failed> {
        let if_none_match = known.and_then(|tag| tag.e_tag.clone());
        let options = GetOptions { if_none_match, ..GetOptions::default() };
        let found = match self.store.get_opts(path, options).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(Found::Absent),
            Err(StoreError::NotModified { .. }) => return Ok(Found::Unchanged),
            Err(error) => return Err(Failed::Store(error)),
        };
        let size = found.meta.size;
        if size > size_max {
            return Err(Failed::Size(size));
        }
        let tag = Tag { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        if known == Some(&tag) {
            return Ok(Found::Unchanged);
        }
        let bytes = found.bytes().await.map_err(Failed::Store)?;
        Ok(Found::Object(Object { bytes: bytes.into(), tag }))
    }
}

/// The reasons for which an object could not be read.
enum Failed {
    Store(StoreError),
    /// The object has this size, in bytes, which is too large.
    Size(u64),
}

impl Objects for Cloud {
    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    fn has_listings(&self) -> bool {
        // Of all kinds of remotes, only web servers take no writes.
        self.can_write
    }

    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found> {
        let path = self.path(name)?;
        self.runtime.block_on(self.read(&path, size_max, known)).map_err(|failed| match failed {
            Failed::Store(error) => self.refused("read", name)(error),
            Failed::Size(got) => {
                let kind = ErrorKind::Limit { what: "size", limit: size_max, got };
                Error::new(kind).at(self.place(name))
            }
        })
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let path = self.path(name)?;
        let bytes = self.runtime.block_on(self.store.get_range(&path, range));
        bytes.map(Into::into).map_err(|error| match error {
            StoreError::NotFound { .. } => {
                let what = "object of this name".to_owned();
                Error::new(ErrorKind::Absent { what }).at(self.place(name))
            }
            error => self.refused("read", name)(error),
        })
    }

    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>> {
        self.check_writable(name)?;
        let mode = match when {
            When::Always => PutMode::Overwrite,
            When::Absent => PutMode::Create,
            When::Is(tag) => PutMode::Update(UpdateVersion {
                e_tag: tag.e_tag.clone(),
                version: tag.version.clone(),
            }),
        };
        let (path, options) = (self.path(name)?, PutOptions::from(mode));
        let put = self.store.put_opts(&path, bytes.to_vec().into(), options);
        match self.runtime.block_on(put) {
            Ok(done) => Ok(Some(Tag { e_tag: done.e_tag, version: done.version })),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(None),
            Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
                let expected = "an object is replaced if it has a known content".to_owned();
                let got = "that it has no such writes".to_owned();
                let kind = ErrorKind::Unconditional { expected, got };
                Err(Error::new(kind).at(self.place(name)))
            }
            Err(error) => Err(self.refused("write", name)(error)),
        }
    }

    fn upload(&self, name: &str, size: u64, parts: &mut Parts<'_>) -> Result<()> {
        self.check_writable(name)?;
        let path = self.path(name)?;
        if size <= PART_SIZE_MIN {
            let mut bytes = Vec::new();
            while let Some(part) = parts()? {
                bytes.extend(part);
            }
            return self.put(name, &bytes, When::Always).map(|_| ());
        }
        let part_size = PART_SIZE_MIN.max(size.div_ceil(PARTS_MAX)) as usize;
        let refused = |error| self.refused("write", name)(error);
        self.runtime.block_on(async {
            let begun = self.store.put_multipart(&path).await.map_err(refused)?;
            let mut upload = WriteMultipart::new_with_chunk_size(begun, part_size);
            loop {
                match parts() {
                    Ok(Some(part)) => {
                        upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(refused)?;
                        upload.write(&part);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        // The first error counts; the object store removes the parts later.
                        let _ = upload.abort().await;
                        return Err(error);
                    }
                }
            }
            upload.finish().await.map(|_| ()).map_err(refused)
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let path = self.path(folder)?;
        let skipped = match self.prefix.as_ref() {
            "" => 0,
            prefix => prefix.len() + 1,
        };
        let listed = self.store.list(Some(&path)).map_ok(|meta| Listed {
            name: meta.location.as_ref().get(skipped..).unwrap_or_default().to_owned(),
            size: meta.size,
        });
        let listed: Result<Vec<Listed>, _> = self.runtime.block_on(listed.try_collect());
        let mut listed = listed.map_err(self.refused("list", folder))?;
        // Files of unfinished writes to HDFS; names of objects never begin with a dot.
        listed
            .retain(|object| !object.name.rsplit('/').next().is_some_and(|it| it.starts_with('.')));
        Ok(listed)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_writable(name)?;
        let path = self.path(name)?;
        match self.runtime.block_on(self.store.delete(&path)) {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.refused("remove", name)(error)),
        }
    }
}

/// Connects to HDFS: its name node, or a name service of the Hadoop configuration (`HADOOP_CONF_DIR`).
/// `HADOOP_USER_NAME` is the user.
#[cfg(feature = "hdfs")]
fn open_hdfs(url: &Url, runtime: &Runtime) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let at = |error: StoreError| Error::remote("open", error).at(url.as_str());
    let prefix = Path::from_url_path(url.path()).map_err(|error| at(error.into()))?;
    let builder = hdfs_native_object_store::HdfsObjectStoreBuilder::new()
        .with_url(&url[..Position::BeforePath])
        .with_io_runtime(runtime.handle().clone());
    Ok((Arc::new(builder.build().map_err(at)?), prefix))
}

/// Refuses HDFS.
#[cfg(not(feature = "hdfs"))]
fn open_hdfs(url: &Url, _: &Runtime) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let expected = "another remote: this program was compiled without the feature `hdfs`";
    Err(Error::argument("remote", expected, url))
}

/// Whether the endpoint of S3 that the environment names speaks HTTP without TLS.
fn has_plain_endpoint() -> bool {
    let endpoints = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"];
    let mut endpoints = endpoints.iter().filter_map(|name| env::var(name).ok());
    endpoints.any(|endpoint| endpoint.starts_with("http://"))
}
