//! How a bucket is opened: whose conventions count, and in which order.
//!
//! What the caller gives comes before the environment, and the environment before profile files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, RetryConfig};

use super::{Options, valid};
use crate::StorageError;
use crate::client::Client;
use crate::stores::cloud::{Cloud, Secrets};

/// Whose language a bucket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    S3,
    Google,
    Azure,
}

/// A bucket, and what all names in it start with.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) provider: Provider,
    /// Of the URL, as the user wrote it.
    pub(super) scheme: String,
    pub(super) name: String,
    /// Azure's storage account, if the URL names it.
    pub(super) account: Option<String>,
    /// Without a `/` at its end.
    pub(super) prefix: String,
}

impl Bucket {
    pub(super) fn open(&self, options: &Options) -> Result<Cloud, StorageError> {
        if let Some(endpoint) = &options.endpoint {
            valid::endpoint(endpoint)?;
        }
        if let Some(region) = &options.region {
            valid::region(region)?;
        }
        let settings = self.settings(&options.variables);
        valid::settings(&settings)?;
        // Also those of a profile file, which no variable has.
        let secrets = Secrets([options.secrets(), super::secrets(&settings)].concat());
        let client = Client::new(options.ca_file().as_deref());
        let store = match self.provider {
            Provider::S3 => self.s3(options, settings, client),
            Provider::Google => self.google(options, settings, client),
            Provider::Azure => self.azure(options, settings, client),
        };
        let store = store.map_err(|why| StorageError::Address {
            text: self.shown(),
            why: secrets.removed_from(&why),
        })?;
        Ok(Cloud { store, prefix: self.prefix.clone(), shown: self.shown(), secrets })
    }

    fn shown(&self) -> String {
        match &self.account {
            Some(account) => format!("{}://{}@{account}", self.scheme, self.name),
            None => format!("{}://{}", self.scheme, self.name),
        }
    }

    /// What is set for this provider, by variables' names in lower case.
    fn settings(&self, variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        match self.provider {
            Provider::S3 => merged(with_prefix(variables, "AWS_"), profile(variables)),
            Provider::Google => with_prefix(variables, "GOOGLE_"),
            Provider::Azure => with_prefix(variables, "AZURE_"),
        }
    }

    fn s3(
        &self,
        options: &Options,
        settings: BTreeMap<String, String>,
        client: Client,
    ) -> Result<Arc<dyn ObjectStore>, String> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in settings {
            if let Ok(key) = name.parse() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(region) = &options.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if options.anonymous {
            builder = builder.with_skip_signature(true);
        }
        let builder = builder.with_bucket_name(&self.name).with_allow_http(true);
        let built = builder.with_retry(no_retries()).with_http_connector(client).build();
        match built {
            Ok(store) => Ok(Arc::new(store)),
            Err(_) => Err("cannot be opened with these options; check the AWS_ \
                           variables, the endpoint and the region"
                .to_owned()),
        }
    }

    fn google(
        &self,
        options: &Options,
        settings: BTreeMap<String, String>,
        client: Client,
    ) -> Result<Arc<dyn ObjectStore>, String> {
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in settings {
            if let Ok(key) = name.parse() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        if options.anonymous {
            builder = builder.with_skip_signature(true);
        }
        let builder = builder.with_bucket_name(&self.name);
        let built = builder.with_retry(no_retries()).with_http_connector(client).build();
        match built {
            Ok(store) => Ok(Arc::new(store)),
            Err(_) => Err("has credentials that cannot be read; check the file that \
                           GOOGLE_APPLICATION_CREDENTIALS names"
                .to_owned()),
        }
    }

    fn azure(
        &self,
        options: &Options,
        settings: BTreeMap<String, String>,
        client: Client,
    ) -> Result<Arc<dyn ObjectStore>, String> {
        let mut builder = MicrosoftAzureBuilder::new();
        for (name, value) in settings {
            if let Ok(key) = name.parse() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(account) = &self.account {
            builder = builder.with_account(account.split('.').next().unwrap_or(account));
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if options.anonymous {
            builder = builder.with_skip_signature(true);
        }
        let builder = builder.with_container_name(&self.name).with_allow_http(true);
        let built = builder.with_retry(no_retries()).with_http_connector(client).build();
        match built {
            Ok(store) => Ok(Arc::new(store)),
            Err(_) => Err("cannot be opened with these options; set \
                           AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or \
                           AZURE_STORAGE_SAS_KEY unless it is public"
                .to_owned()),
        }
    }
}

fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: Duration::ZERO,
        ..RetryConfig::default()
    }
}

/// Variables that start with `prefix`, in lower case. A file that a variable was made of often ends in a line
/// break.
fn with_prefix(
    variables: &BTreeMap<String, String>,
    prefix: &str,
) -> BTreeMap<String, String> {
    let ours = variables.iter().filter(|(name, _)| name.starts_with(prefix));
    let ours = ours.map(|(name, value)| (name.to_ascii_lowercase(), value.trim()));
    let given = ours.filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| (name, value.to_owned())).collect()
}

/// The environment's settings, with those of the profile that belong to none of them: half a credential
/// of each, or a region in two spellings, is what nobody gave.
fn merged(
    environment: BTreeMap<String, String>,
    mut profile: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let groups: [(&[&str], &[&str]); 3] = [
        (
            &["aws_access_key_id", "aws_web_identity_token_file"],
            &["aws_access_key_id", "aws_secret_access_key", "aws_session_token"],
        ),
        (&["aws_region", "aws_default_region"], &["aws_region"]),
        (
            &["aws_endpoint_url", "aws_endpoint", "aws_endpoint_url_s3"],
            &["aws_endpoint_url"],
        ),
    ];
    for (given, replaced) in groups {
        if given.iter().any(|name| environment.contains_key(*name)) {
            profile.retain(|name, _| !replaced.contains(&&**name));
        }
    }
    profile.extend(environment);
    profile
}

/// What AWS's profile files say, as variables. Files that are not there say nothing.
fn profile(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let home = variables.get("HOME").map(|home| Path::new(home).join(".aws"));
    let file = |variable: &str, name: &str| {
        let given = variables.get(variable).map(PathBuf::from);
        let path = given.or_else(|| home.as_ref().map(|home| home.join(name)))?;
        std::fs::read_to_string(path).ok()
    };
    let profile = variables.get("AWS_PROFILE").map_or("default", String::as_str);
    let mut found = BTreeMap::new();
    for text in [
        file("AWS_CONFIG_FILE", "config"),
        file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    ] {
        found.extend(section(text.as_deref().unwrap_or_default(), profile));
    }
    found
}

/// The settings of one profile that are ours.
fn section(text: &str, profile: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        {
            let name = name.trim();
            is_ours = name.strip_prefix("profile ").map_or(name, str::trim) == profile;
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_ours) else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim().to_owned());
        let name = match name {
            "region" => "aws_region",
            "endpoint_url" => "aws_endpoint_url",
            "aws_access_key_id" | "aws_secret_access_key" | "aws_session_token" => name,
            _ => continue,
        };
        found.insert(name.to_owned(), value);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn a_profile_and_the_environment_are_not_mixed_within_one_setting() {
        let profile = of(&[
            ("aws_access_key_id", "old"),
            ("aws_secret_access_key", "old"),
            ("aws_session_token", "old"),
            ("aws_region", "old"),
            ("aws_endpoint_url", "old"),
        ]);
        let keys = &[("aws_access_key_id", "new"), ("aws_secret_access_key", "new")];
        for (environment, n_kept) in [
            (of(keys), 2),
            (of(&[("aws_web_identity_token_file", "new")]), 2),
            (of(&[("aws_default_region", "new")]), 4),
            (of(&[("aws_endpoint_url_s3", "new")]), 4),
            (of(&[("aws_role_arn", "new")]), 5),
        ] {
            let found = merged(environment.clone(), profile.clone());
            assert!(environment.iter().all(|(name, _)| found[name] == "new"));
            let n_old = found.values().filter(|value| *value == "old").count();
            assert_eq!(n_old, n_kept, "{environment:?}");
        }
    }

    #[test]
    fn a_profile_gives_what_the_environment_does_not() {
        let text = "[default]\nregion = a\n\n[profile lab]\nregion=eu-west-1\n# x\n\
                    aws_access_key_id = key\nsso_start_url = x\nendpoint_url = http://s\n[other]\n\
                    aws_secret_access_key = no";
        let found = section(text, "lab");
        let expected = [
            ("aws_access_key_id", "key"),
            ("aws_endpoint_url", "http://s"),
            ("aws_region", "eu-west-1"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert!(found.into_iter().eq(expected));
    }

    #[test]
    fn credentials_of_a_profile_are_removed_from_messages() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let text = "[lab]\naws_access_key_id = AKIALAB\naws_secret_access_key = hush/lab\n\
                    region = eu-west-1\n[default]\naws_secret_access_key = other";
        std::fs::write(home.path().join(".aws/credentials"), text).unwrap();
        let variables =
            of(&[("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "lab")]);
        let bucket = Bucket {
            provider: Provider::S3,
            scheme: "s3".to_owned(),
            name: "bucket".to_owned(),
            account: None,
            prefix: String::new(),
        };
        let cloud = bucket.open(&Options { variables, ..Options::default() }).unwrap();
        let shown =
            cloud.secrets.removed_from("AKIALAB:hush/lab at eu-west-1 is refused");
        assert_eq!(shown, "***:*** at eu-west-1 is refused");
    }
}
