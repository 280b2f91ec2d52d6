//! Tests of the public interface: transfers, changes of the pointer, and followers, over a naive object
//! store with faults, and over folders.

mod collect;
mod fixture;
mod follow;
#[cfg(feature = "hdfs")]
mod hdfs;
mod hostile;
mod http;
mod naive;
mod objects;
mod publish;
mod repair;
mod s3;
mod signed;
mod topology;
mod transfer;
mod trial;
