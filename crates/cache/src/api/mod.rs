//! HEAD

mod adoption;
#[cfg(feature = "bench")]
pub mod benching;
mod clearing;
pub(crate) mod extension;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod inserting;
pub(crate) mod locating;
pub(crate) mod open;
mod reading;
mod report;
pub(crate) mod validate;
pub(crate) mod warming;
