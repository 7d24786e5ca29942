//! The official clients and suites against the built binary, over every transport, in both protocol eras: the Python SDK's
//! client, rmcp's own, the inspector's command line, the conformance suites, and agent frameworks. One way with each by
//! default, all in the long form.

mod conformance;
mod frameworks;
mod inspector;
mod python;
mod rust;

#[tokio::test]
async fn a_test_whose_packages_are_missing_passes_and_says_how_to_get_them() {
    let filters = ["conformance::", "frameworks::", "inspector::", "python::"];
    let run = testkit::run_without_externals(&filters, false).await;
    assert!(run.success && run.passed > 15, "{run:?}");
    assert_eq!(run.passed, run.skipped.len(), "one line for each: {run:?}");
}
