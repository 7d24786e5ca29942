//! The keys of `[notify]`.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use std::path::PathBuf;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::Deserialize;

use super::addresses::TargetUrl;
use super::key_group::keys;
use crate::notify::{NoticeForm, NotifySettings, SigningSecret};

pub(super) const NOTIFY: &str = "notify";

keys! {
    /// Notices of proposals: the table `[notify]`.
    #[command(next_help_heading = "Options for notices")]
    NotifyKeys {
        /// Post a notice to this URL when a write is proposed or decided on, or its proposal becomes stale,
        /// expires or fails. https://, or http:// on this machine.
        #[arg(id = "notify_url", long = "notify-url", env = "COUNTERSIGN_NOTIFY_URL", value_name = "URL")]
        url: TargetUrl,
        /// Form of a notice: json (the default), or slack, a text for an incoming webhook of Slack.
        #[arg(id = "notify_form", long = "notify-form", env = "COUNTERSIGN_NOTIFY_FORM", value_name = "FORM")]
        form: NoticeForm,
        /// File with the secret that signs notices (Standard Webhooks): whsec_ and 24 to 64 bytes in base64.
        /// Required for json.
        #[arg(id = "notify_secret_file", long = "notify-secret-file", env = "COUNTERSIGN_NOTIFY_SECRET_FILE", value_name = "FILE")]
        secret_file: PathBuf,
        /// Address of pages about proposals, to which a notice appends the id: https://console.example.com/proposals/
        #[arg(id = "notify_link_base", long = "notify-link-base", env = "COUNTERSIGN_NOTIFY_LINK_BASE", value_name = "URL")]
        link_base: TargetUrl,
    }
}

impl NotifyKeys {
    /// What is sent where; `None` for nothing.
    ///
    /// # Errors
    /// A key without a URL, and a secret that cannot be read or is none.
    pub(super) fn settings(self) -> anyhow::Result<Option<NotifySettings>> {
        let Self { url, form, secret_file, link_base } = self;
        let Some(url) = url else {
            if form.is_some() || secret_file.is_some() || link_base.is_some() {
                bail!("[notify] has no url (--notify-url, COUNTERSIGN_NOTIFY_URL), so nothing would be sent");
            }
            return Ok(None);
        };
        let form = form.unwrap_or_default();
        let secret = match secret_file {
            Some(path) => {
                let named = || format!("the file {} (secret_file of [notify])", path.display());
                let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", named()))?;
                Some(SigningSecret::parse(text.trim_end_matches(['\r', '\n'])).with_context(named)?)
            }
            None if form == NoticeForm::Json => bail!(
                "[notify] has no secret_file (--notify-secret-file, COUNTERSIGN_NOTIFY_SECRET_FILE): a receiver could not tell who \
                 sends a notice"
            ),
            None => None,
        };
        let url = url.into_text().parse()?;
        Ok(Some(NotifySettings { url, form, secret, link_base: link_base.map(TargetUrl::into_text) }))
    }
}
