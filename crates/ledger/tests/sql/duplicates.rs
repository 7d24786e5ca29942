//! duplicates
