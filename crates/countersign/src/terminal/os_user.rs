//! The user of this process, as the operating system knows it: variables such as `USER` can contain anything.

/// The name of the effective user, or `uid N` if the number has none.
pub(crate) fn name() -> String {
    os::user_name().unwrap_or_else(os::user_id)
}
