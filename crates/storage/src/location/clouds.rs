//! How a bucket is opened: whose conventions count, and in which order.
//!
//! What the caller gives comes before the environment, and the environment before profile files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, RetryConfig};

use super::profile::{self, Profile};
use super::{Options, valid};
use crate::StorageError;
use crate::client::Client;
use crate::stores::cloud::lasting::Lasting;
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
        let secrets =
            Secrets::of([options.secrets(), super::secrets(&settings)].concat());
        let failed = |why: String| StorageError::Address {
            text: self.shown(),
            why: secrets.removed_from(&why),
        };
        let client = options.client();
        if CREDENTIALS_COME.iter().any(|name| options.variables.contains_key(*name)) {
            client.expect_machine();
        }
        let profile = self.profile(options, &secrets).map_err(failed)?;
        let (of_profile, renewed) =
            profile.map(|it| (it.credentials, it.renewed)).unzip();
        let store = match self.provider {
            Provider::S3 => self.s3(options, (settings, of_profile), client),
            Provider::Google => self.google(options, settings, client),
            Provider::Azure => self.azure(options, settings, client),
        };
        let store = store.map_err(failed)?;
        let (prefix, shown) = (self.prefix.clone(), self.shown());
        Ok(Cloud { store, prefix, shown, secrets, renewed })
    }

    /// Where the credentials of AWS's profile come from, if those count.
    fn profile(
        &self,
        options: &Options,
        secrets: &Secrets,
    ) -> Result<Option<profile::Source>, String> {
        let given = with_prefix(&options.variables, "AWS_");
        // As `object_store` reads it.
        let is_yes = |value: &String| {
            ["1", "true", "on", "yes", "y"].contains(&&*value.to_ascii_lowercase())
        };
        let has = |name: &str| given.contains_key(name);
        let is_anonymous =
            options.anonymous || given.get("aws_skip_signature").is_some_and(is_yes);
        let is_given = OF_ENVIRONMENT.iter().any(|name| has(name));
        if self.provider != Provider::S3 || is_anonymous || is_given {
            return Ok(None);
        }
        Profile::of(&options.variables).source(secrets)
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
            Provider::S3 => {
                let profile = Profile::of(variables).variables();
                merged(with_prefix(variables, "AWS_"), profile)
            }
            Provider::Google => with_prefix(variables, "GOOGLE_"),
            Provider::Azure => with_prefix(variables, "AZURE_"),
        }
    }

    fn s3(
        &self,
        options: &Options,
        (settings, of_profile): (BTreeMap<String, String>, Option<AwsCredentialProvider>),
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
        let builder = builder.with_retry(no_retries()).with_http_connector(client);
        let built = match of_profile {
            // These know until when they are good.
            Some(credentials) => builder.with_credentials(credentials).build(),
            None => builder.clone().build().and_then(|store| {
                let lasting = Lasting::around(store.credentials());
                builder.with_credentials(lasting).build()
            }),
        };
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
        let builder = builder.with_retry(no_retries()).with_http_connector(client);
        let built = builder.clone().build().and_then(|store| {
            let lasting = Lasting::around(store.credentials());
            builder.with_credentials(lasting).build()
        });
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
        let builder = builder.with_retry(no_retries()).with_http_connector(client);
        let built = builder.clone().build().and_then(|store| {
            let lasting = Lasting::around(store.credentials());
            builder.with_credentials(lasting).build()
        });
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

/// Variables of containers, whose credentials come from a service on the machine, most often.
const CREDENTIALS_COME: [&str; 3] = [
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "KUBERNETES_SERVICE_HOST",
];

/// With one of these, the environment has credentials, and those of a profile do not count.
const OF_ENVIRONMENT: [&str; 2] = ["aws_access_key_id", "aws_web_identity_token_file"];

/// The environment's settings, with those of the profile that belong to none of them: half a credential
/// of each, or a region in two spellings, is what nobody gave.
fn merged(
    environment: BTreeMap<String, String>,
    mut profile: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let groups: [(&[&str], &[&str]); 3] = [
        (
            &OF_ENVIRONMENT,
            &[
                "aws_access_key_id",
                "aws_secret_access_key",
                "aws_session_token",
                "aws_web_identity_token_file",
                "aws_role_arn",
                "aws_role_session_name",
            ],
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
