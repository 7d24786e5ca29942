//! Tests over the whole binary.

mod reference;
