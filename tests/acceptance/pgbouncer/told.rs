//! A server has to be told of the pooler.
