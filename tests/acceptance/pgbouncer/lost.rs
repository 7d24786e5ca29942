//! The connection is lost at COMMIT, on either side of the pooler, or the pooler itself is.
