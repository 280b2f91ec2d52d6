//! Moves versions of stores through object storage, and makes them current on many servers at once.
//!
//! ```text
//!  builder                 object storage                        servers
//!  store ── push ──→ stores/S/versions/N, tables/… ── fetch ──→ store of each server
//!                    groups/G/ready/NODE         ←── ready ───┘     ↑
//!  controller ── publish, rollback ──→ groups/G/CURRENT ── poll ────┘ activate, all at one moment
//! ```
//!
//! - [`push`] uploads what the remote lacks of one version, [`fetch`] makes a version complete in a
//!   local store; [`repair`] replaces what is damaged there. Every piece is compared with its BLAKE3 hash
//!   before it is used.
//! - [`collect`] removes old versions from the remote.
//! - [`push_signed`] signs the version; nodes with [`TrustedKeys`] refuse versions that none of these keys
//!   has signed, before they fetch anything else.
//! - A [`Controller`] changes the pointer of a group of stores, by one compare-and-swap: publish,
//!   rollback, mark as bad. A rollback takes the same time for data of any size. Before it publishes, servers
//!   compare a sample of the values; with a [`Bake`], those of one zone use the versions first.
//! - A [`Topology`] says which servers of a cluster have which slots; a remote has one, which is replaced by
//!   compare-and-swap.
//! - A [`Follower`] runs beside a server: it polls the pointer, fetches the versions that the pointer
//!   names, reports that they are ready, and activates them at the pointer's moment.
//! - A [`Remote`] is a folder, S3, or an HTTP server to fetch from; Google Cloud Storage and Azure go
//!   through the same library, and are untested. With the feature `hdfs`, HDFS keeps versions, too, but no
//!   pointer. [`Objects`] is what a remote needs.
//!
//! ```
//! use hashfold::{Env, Store, StoreOptions, work::Watch};
//! use hashfold_deploy::{Controller, FetchOptions, PublishOptions, Remote, fetch, push};
//!
//! let (env, watch) = (Env::simulated(1), Watch::default()); // or Env::system()
//! let store = Store::open_or_create_with("people", StoreOptions::new().env(env.clone()))?;
//! let mut update = store.update()?;
//! update.put("4711", "Eve")?;
//! update.publish()?;
//!
//! let remote = Remote::open(&env, "remote")?; // or s3://bucket/prefix
//! let pushed = push(&env, "people".as_ref(), None, &remote, "people", &watch)?;
//! let number = pushed.info.name.number;
//!
//! let options = FetchOptions::default();
//! fetch(&env, &remote, "people", number, "copy".as_ref(), &options, &watch)?;
//! let copy = Store::open_in(env.clone(), "copy")?;
//! assert_eq!(copy.version(number)?.get("4711")?.as_deref(), Some(&b"Eve"[..]));
//!
//! let controller = Controller::new(&env, &remote, "main", "eve@example.org")?;
//! let versions = [("people".to_owned(), number)];
//! let pointer = controller.publish(&versions, &PublishOptions::default(), &watch)?;
//! assert_eq!(pointer.stores["people"].version, number);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The layout of the objects: `docs/formats/deploy.md`. Nothing here has to be up for servers to go
//! on serving what they have. All calls block; the async runtime of the object store is inside.

mod cloud;
mod collect;
mod controller;
mod error;
mod fetch;
mod folder;
mod follow;
mod gates;
mod key;
mod layout;
mod lookout;
mod objects;
mod observed;
mod pieces;
mod placement;
mod pointer;
mod probe;
mod push;
mod quorum;
mod rate;
mod ready;
mod remote;
mod repair;
mod signature;
mod swap;
mod topology;
mod trial;

pub use self::{
    collect::{CollectOptions, Collected, collect},
    controller::{Controller, PublishOptions, Status},
    error::{Error, ErrorKind, Result},
    fetch::{FetchOptions, Fetched, fetch},
    folder::FolderObjects,
    follow::{Activate, Activation, FollowOptions, FollowedStore, Follower},
    key::{PublicKey, SigningKey, TrustedKeys},
    layout::{GROUP_DEFAULT, check_name},
    objects::{Found, Listed, Object, Objects, Parts, Tag, When},
    observed::{FollowState, Observed},
    placement::{OpenVersions, Placed, Placement},
    pointer::{Digest, GroupPointer, Id, StoreVersion, Target, Targets, Trial},
    probe::check_conditions,
    push::{Pushed, push, push_signed},
    rate::RateLimit,
    ready::{NodeSample, NodeVersion, Readiness, VersionState},
    remote::Remote,
    repair::{Repaired, mend_pointer, repair},
    signature::VersionSignature,
    swap::{BACK_OFF_MAX, back_off},
    topology::{Node, Shard, Topology, TopologyReader},
    trial::Bake,
};
