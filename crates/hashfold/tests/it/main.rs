//! Tests of the public interface, in one test target.

mod crash;
mod damage;
mod documents;
mod end_to_end;
mod filter_golden;
mod filter_kill;
mod fingerprints;
mod fixture;
mod formats;
mod golden;
mod index;
mod kill;
mod kinds;
mod layers;
mod model;
mod overtaken;
mod paper_quotient;
mod quotient;
mod quotient_damage;
mod store_crash;
mod store_damage;
mod store_fixture;
mod store_kill;
mod store_lost;
mod store_part;
mod store_readers;
