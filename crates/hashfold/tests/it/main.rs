//! Tests of the public interface, in one target.

mod crash;
mod damage;
mod end_to_end;
mod fixture;
mod golden;
mod index;
mod layers;
mod model;
