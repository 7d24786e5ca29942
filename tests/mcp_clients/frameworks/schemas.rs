//! Every listed schema through every converter of a framework: no tool and no argument is lost, and none that is required
//! becomes optional (I-3).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{Server, database, repository};

use super::Framework;
use super::model::Target;

/// What all converters have to keep of a schema.
#[derive(Debug, Deserialize)]
struct Parameters {
    #[serde(default)]
    properties: BTreeMap<String, Value>,
    #[serde(default)]
    required: BTreeSet<String>,
}

impl Parameters {
    fn of(schema: &Value) -> Self {
        serde_json::from_value(schema.clone()).unwrap_or_else(|error| panic!("{error}: {schema}"))
    }
}

/// The arguments of a server that lists every tool of this repository.
fn every_tool() -> Vec<String> {
    let manifests = ["social.toml", "studio.toml"].map(|name| repository().join("manifests").join(name));
    let manifests = manifests.iter().flat_map(|path| ["--manifest".to_owned(), path.to_str().unwrap().to_owned()]);
    let more = ["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "confirm"].map(ToOwned::to_owned);
    manifests.chain(more).collect()
}

pub(super) async fn reach_the_model(framework: &Framework) {
    let db = database().await;
    let server = Server::bare_with(&db, |it| it.args(every_tool())).await;
    let listed: BTreeMap<String, Parameters> = server
        .client()
        .list_tools()
        .await
        .unwrap()
        .into_iter()
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), Parameters::of(&tool["inputSchema"])))
        .collect();
    server.close().await;

    let mut model = framework.start(&db, &Target::stdio(&every_tool()), false);
    model.call("query_database", json!({"query": "select 1"})).await;
    assert!(!model.offered.is_empty());
    for offered in &model.offered {
        let by = &offered.by;
        assert!(listed.keys().eq(offered.tools.keys()), "{by}: {:?}", offered.tools.keys());
        for (name, schema) in &offered.tools {
            let (listed, converted) = (&listed[name], Parameters::of(schema));
            assert!(listed.properties.keys().eq(converted.properties.keys()), "{by}, {name}: {schema}");
            assert!(listed.required.is_subset(&converted.required), "{by}, {name}: {schema}");
        }
    }
    model.finish().await;
}
