//! The page about several databases: production and staging of the shop behind one server.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use testkit::Server;
use tokio::process::Command;

use super::sample;
use super::shop::Shop;

const PAGE: &str = "docs/topics/several-databases.md";

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_staging_is_undone_as_the_page_says() {
    let shop = Shop::new().await;
    let path = |name: &str| shop.folder().join(name);
    std::fs::write(path("tables.sql"), super::shop::TABLES).unwrap();
    shop.shell(&sample(PAGE, "psql -q -d shop -c"), "").await;
    for database in ["shop", "shop_staging"] {
        let url = shop.url("countersign_writer").replace("/shop", &format!("/{database}"));
        let file = path(&format!("{database}.url"));
        std::fs::write(&file, url).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::write(path("countersign.toml"), sample(PAGE, "# countersign.toml")).unwrap();

    // The call of the page, and what its answer has in common with that of the page.
    let call = sample(PAGE, "{\"name\": \"set_order_status\"");
    let mut documents = serde_json::Deserializer::from_str(&call).into_iter::<Value>();
    let (request, shown) = (documents.next().unwrap().unwrap(), documents.next().unwrap().unwrap());
    let mut command = Command::new(testkit::countersign());
    command.arg("--config").arg(path("countersign.toml")).arg("serve");
    let server = Server::start(command).await;
    let answer = server.succeed(request["name"].as_str().unwrap(), request["arguments"].clone()).await;
    let id = answer["meta"]["correlation_id"].as_str().unwrap().to_owned();
    let rollback = &answer["meta"]["rollback"];
    server.succeed(rollback["undo_tool"].as_str().unwrap(), rollback["undo_params"].clone()).await;
    server.close().await;
    let shown_id = shown["meta"]["rollback"]["undo_params"]["correlation_id"].as_str().unwrap();
    let mut shown: Value = serde_json::from_str(&shown.to_string().replace(shown_id, &id)).unwrap();
    for pointer in
        ["/data", "/meta/database", "/meta/environment", "/meta/rollback/undo_tool", "/meta/rollback/undo_params"]
    {
        assert_eq!(answer.pointer(pointer).unwrap(), &shown.pointer_mut(pointer).unwrap().take(), "{pointer}");
    }

    let session = sample(PAGE, "$ countersign audit list");
    let (before, after) = session.split_once("$ countersign audit show").unwrap();
    let listed = shop.shell("countersign audit list --config countersign.toml", "").await;
    let beginnings = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("shop") || line.starts_with("No ")).map(str::to_owned).collect()
    };
    assert_eq!(beginnings(&listed), beginnings(before));
    assert!(listed.contains(&id[..8]), "{listed}");
    let shown = shop.shell(&format!("countersign audit show {} --config countersign.toml", &id[..8]), "").await;
    assert_eq!(shown.lines().next(), after.lines().nth(1));
    shop.run_in("shop_staging", "do $$ begin assert (select status from shop.orders where id = 17) = 'paid'; end $$")
        .await;
}
