//! Rows in the values of [hashfold](https://docs.rs/hashfold) tables and stores, as the command
//! `hashfold` writes them: several columns with names and kinds in one value.
//!
//! A data set that the command made from CSV, JSON Lines, Parquet or Arrow has a [`Schema`]: the
//! name and type of the key, and the columns of a value. [`Schema::row`] decodes a value,
//! [`Row::get`] returns one column, and [`Schema::encode`] makes the bytes of a value.
//!
//! ```
//! # std::env::set_current_dir(std::env::temp_dir())?;
//! use hashfold::Table;
//! use hashfold_rows::Schema;
//!
//! # use hashfold::{TableBuilder, TableOptions};
//! # use hashfold_rows::{Column, Item, Kind, Value};
//! # let column = |name: &str, kind| Column { name: name.into(), kind };
//! # let kinds = [("email", Kind::Text), ("age", Kind::Int64), ("place", Kind::List { item: Item::Float32 })];
//! # let schema = Schema::new("id", kinds.map(|(name, kind)| column(name, kind)).to_vec());
//! # let mut value = Vec::new();
//! # schema.encode([Value::Bytes(b"eve@example.org"), Value::Int(47), Value::Json(b"[0.5,2]")], &mut value).unwrap();
//! # let attributes = vec![(Schema::ATTRIBUTE.into(), schema.to_json())];
//! # let options = TableOptions::new().replace(true).attributes(attributes);
//! # let mut builder = TableBuilder::with("hashfold-rows-people", options)?;
//! # builder.push("4711", value)?;
//! # builder.finish()?;
//! // A table that `hashfold build people.parquet --key id` made.
//! let table = Table::open("hashfold-rows-people")?;
//! let schema = Schema::of_table(&table)?;
//! let value = table.get("4711")?.expect("the key is there");
//! let row = schema.row(&value)?;
//!
//! assert_eq!(row.get("email").and_then(|value| value.as_str()).as_deref(), Some("eve@example.org"));
//! assert_eq!(row.get("age").and_then(|value| value.as_i64()), Some(47));
//! let place = row.get("place").and_then(|value| value.as_list());
//! assert_eq!(place.and_then(|list| list.to_f32()), Some(vec![0.5, 2.0]));
//! assert_eq!(row.get("phone"), None);
//! // The whole row, as `hashfold get` prints it without the key.
//! assert_eq!(row.to_string(), r#"{"email":"eve@example.org","age":47,"place":[0.5,2]}"#);
//! # std::fs::remove_dir_all("hashfold-rows-people")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The schema of a store's version is `Schema::of_version(reader.version().info())?`, with the
//! [`StoreReader`](hashfold::store::StoreReader) that the values come from.
//!
//! Keys are bytes. [`Schema::key_type`] says whether they are the decimal text of integers, so that
//! `get("4711")` finds a key that was a number in the input.
//!
//! The cargo feature `arrow` converts rows to record batches of Apache Arrow, and back.
//!
//! Bytes from a data set never cause a panic: a value that does not fit its schema is an error.
//! The formats are described in `docs/formats/row.md`.

#[cfg(feature = "arrow")]
pub mod arrow;
mod encode;
mod json;
mod key;
mod kind;
mod list;
mod number;
mod row;
mod schema;
mod time;
mod value;

pub use self::{
    encode::{Mismatch, RowEncoder},
    json::{JsonObject, read_json_bytes, write_json_bytes},
    key::{KeyType, KeyTypes},
    kind::{Item, Kind, Unit},
    list::List,
    row::fixed_value,
    schema::{Column, Form, Row, Schema},
    time::{unix_ms, unix_ms_or_utc, utc, utc_of_ms},
    value::Value,
};
