//! Tests of the toolset.

use std::pin::Pin;

use manifest::Access;

use types::Principal;

use super::*;
use crate::registry::Registry;
use crate::tool::Annotations;

struct Broken(ToolInfo);

impl Tool for Broken {
    fn info(&self) -> &ToolInfo {
        &self.0
    }

    fn call(&self, _: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async { panic!("with a secret in it") })
    }
}

fn broken() -> Box<dyn Tool> {
    Box::new(Broken(ToolInfo {
        name: "broken".into(),
        title: None,
        description: String::new(),
        version: "1.0".into(),
        access: Access::Read,
        tier: None,
        rules: Vec::new(),
        limit: None,
        reason: None,
        input_schema: Arc::default(),
        output_schema: Arc::default(),
        hints: Annotations { read_only: true, destructive: false, idempotent: true },
        sensitive: Vec::new(),
        meta: Map::new(),
    }))
}

#[tokio::test]
async fn a_tool_that_panics_answers_internal_error_without_its_words() {
    let mut tools = Toolset { call_deadline: Duration::from_secs(1), ..Toolset::default() };
    let metrics = Metrics::new();
    tools.add(broken(), &BuiltinTool::default(), &metrics).unwrap();
    let registry = Registry::of_one(Arc::new(tools));
    let reply = registry.call("broken", Map::new(), Principal::default()).await.unwrap();
    let Envelope::Failure { error, .. } = reply.envelope else { panic!("{reply:?}") };
    assert_eq!(error.code, ErrorCode::InternalError);
    assert!(!error.message.contains("secret"), "{}", error.message);
    assert!(registry.call("unknown", Map::new(), Principal::default()).await.is_none());
    let counted = metrics.counted();
    assert!(counted.contains(r#"calls_total{tool="broken",outcome="internal_error"} 1"#), "{counted}");
    assert!(!counted.contains("\"unknown\"") && counted.contains("calls_in_flight 0\n"), "{counted}");
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let mut tools = Toolset { call_deadline: Duration::from_secs(1), ..Toolset::default() };
    tools.add(broken(), &BuiltinTool::default(), &Metrics::new()).unwrap();
    assert_eq!(
        tools.add(broken(), &BuiltinTool::default(), &Metrics::new()),
        Err(ToolsetError::Duplicate("broken".into()))
    );
}
