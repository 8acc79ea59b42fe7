//! AWS's profile files: what one profile says, and the keys that it has.

pub(super) mod command;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::aws::{AwsCredential, AwsCredentialProvider};

use super::valid;
use crate::stores::cloud::keys::{Keys, OfFiles};
use crate::stores::cloud::{Renewed, Secrets};
use command::{Command, OfCommand};

/// What else a profile may have credentials by.
const UNSUPPORTED: [&str; 7] = [
    "role_arn",
    "source_profile",
    "credential_source",
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "sso_role_name",
];

/// Settings by their names in a file.
type Settings = BTreeMap<String, String>;

/// A profile of the user's files.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// Those of a later one count more.
    files: Vec<PathBuf>,
    name: String,
    /// Whether the user has named it; else it is the one that counts where none is named.
    is_named: bool,
}

/// Where credentials come from.
pub(super) struct Source {
    pub(super) credentials: AwsCredentialProvider,
    pub(super) renewed: Arc<dyn Renewed>,
}

impl Profile {
    /// That of the environment. Files that are not there say nothing.
    pub(super) fn of(variables: &BTreeMap<String, String>) -> Self {
        let home = variables.get("HOME").map(|home| Path::new(home).join(".aws"));
        let file = |variable: &str, name: &str| {
            let given = variables.get(variable).map(PathBuf::from);
            given.or_else(|| home.as_ref().map(|home| home.join(name)))
        };
        let files = [
            file("AWS_CONFIG_FILE", "config"),
            file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        ];
        let named = variables.get("AWS_PROFILE").map(|name| name.trim());
        let named = named.filter(|name| !name.is_empty());
        let name = named.unwrap_or("default").to_owned();
        let files = files.into_iter().flatten().collect();
        Self { files, name, is_named: named.is_some() }
    }

    /// All that it says; `None` where no file has it.
    fn settings(&self) -> Option<Settings> {
        let texts = self.files.iter().map(std::fs::read_to_string);
        let sections = texts.filter_map(|text| section(&text.ok()?, &self.name));
        sections.reduce(|mut found, more| {
            found.extend(more);
            found
        })
    }

    /// The same as variables.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let mut settings = self.settings().unwrap_or_default();
        let is_web = settings.contains_key("web_identity_token_file");
        settings.retain(|name, _| is_web || !name.starts_with("role_"));
        let named = settings.into_iter().filter_map(|(name, value)| {
            let name = match &*name {
                "region" => "aws_region",
                "endpoint_url" => "aws_endpoint_url",
                "role_arn" => "aws_role_arn",
                "role_session_name" => "aws_role_session_name",
                "web_identity_token_file" => "aws_web_identity_token_file",
                "aws_access_key_id" | "aws_secret_access_key" | "aws_session_token" => {
                    &*name
                }
                _ => return None,
            };
            Some((name.to_owned(), value))
        });
        named.collect()
    }

    /// Where its credentials come from, if it has some: keys, or a command that prints them. Runs the command.
    ///
    /// # Errors
    /// What is wrong with it: a profile that the user has named, and that is not there or has credentials of another kind,
    /// is not what the user gets without a word.
    pub(super) fn source(&self, secrets: &Secrets) -> Result<Option<Source>, String> {
        let Some(settings) = self.settings() else {
            let name = &self.name;
            let why = format!(
                "cannot be opened with the profile `{name}` (AWS_PROFILE): no such profile is in ~/.aws/config or \
                 ~/.aws/credentials"
            );
            return if self.is_named { Err(why) } else { Ok(None) };
        };
        let of = self.clone();
        let read = move || keys(&of.settings()?);
        if let Some(keys) = Keys::of(self.files.clone(), Box::new(read), secrets) {
            let keys = Arc::new(OfFiles(keys));
            let credentials = Arc::<OfFiles>::clone(&keys);
            return Ok(Some(Source { credentials, renewed: keys }));
        }
        if let Some(line) = settings.get("credential_process") {
            let command = Command::start(line, secrets).map_err(|why| {
                let name = &self.name;
                format!("cannot be opened with the profile `{name}`: its credential_process {why}")
            })?;
            let credentials = Arc::new(OfCommand(Arc::clone(&command)));
            return Ok(Some(Source { credentials, renewed: command }));
        }
        if self.is_named && !settings.contains_key("web_identity_token_file") {
            self.check(&settings)?;
        }
        Ok(None)
    }

    /// Refuses credentials that cannot be used. A profile that has none at all leaves them to the machine.
    fn check(&self, settings: &Settings) -> Result<(), String> {
        let has_half =
            settings.keys().any(|name| name.starts_with("aws_") && name.contains("key"));
        let mut has = UNSUPPORTED.iter().filter(|name| settings.contains_key(**name));
        let has = match has.next() {
            Some(name) => format!("{name}, which is not supported"),
            None if has_half => "a key that is not complete".to_owned(),
            None => return Ok(()),
        };
        let name = &self.name;
        Err(format!(
            "cannot be opened with the profile `{name}` (AWS_PROFILE): it has {has}; supported are \
             aws_access_key_id with aws_secret_access_key, credential_process, and web_identity_token_file with \
             role_arn. Or export its credentials: eval \"$(aws configure export-credentials --profile {name} \
             --format env)\""
        ))
    }
}

/// The keys among these settings, if they are whole.
fn keys(settings: &Settings) -> Option<AwsCredential> {
    let get = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
    let key_id = get("aws_access_key_id")?;
    let secret_key = get("aws_secret_access_key")?;
    let token = get("aws_session_token");
    usable(AwsCredential { key_id, secret_key, token })
}

/// Credentials that a request can carry.
fn usable(keys: AwsCredential) -> Option<AwsCredential> {
    let is_plain = [&keys.key_id, &keys.secret_key].into_iter().chain(&keys.token);
    let is_plain = is_plain.map(String::as_str).all(valid::is_plain);
    is_plain.then_some(keys)
}

/// The settings of one profile; `None` where the text does not have it.
fn section(text: &str, profile: &str) -> Option<Settings> {
    let mut found: Option<Settings> = None;
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        {
            let name = name.trim();
            is_ours = name.strip_prefix("profile ").map_or(name, str::trim) == profile;
            if is_ours {
                found.get_or_insert_default();
            }
            continue;
        }
        let setting = line.split_once('=').filter(|_| !line.starts_with(['#', ';']));
        if let (Some((name, value)), Some(found), true) = (setting, &mut found, is_ours) {
            found.insert(name.trim().to_owned(), value.trim().to_owned());
        }
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

    /// A profile `lab` in a folder with this text.
    fn lab(text: &str) -> (tempfile::TempDir, Profile) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/config"), text).unwrap();
        let variables =
            of(&[("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "lab")]);
        let profile = Profile::of(&variables);
        (home, profile)
    }

    #[test]
    fn a_profile_gives_what_the_environment_does_not() {
        let (_home, profile) = lab(
            "[default]\nregion = a\n\n[profile lab]\nregion=eu-west-1\n# x\n#region=no\n\
             aws_access_key_id = key\nsso_start_url = x\nendpoint_url = http://s\n[other]\n\
             aws_secret_access_key = no",
        );
        let expected = of(&[
            ("aws_access_key_id", "key"),
            ("aws_endpoint_url", "http://s"),
            ("aws_region", "eu-west-1"),
        ]);
        assert_eq!(profile.variables(), expected);
        let (_home, profile) =
            lab("[profile lab]\nrole_arn = a\nweb_identity_token_file = /t");
        let expected =
            of(&[("aws_role_arn", "a"), ("aws_web_identity_token_file", "/t")]);
        assert_eq!(profile.variables(), expected);
        assert!(profile.source(&Secrets::of(Vec::new())).unwrap().is_none());
    }

    #[test]
    fn a_profile_without_credentials_of_its_own_leaves_them_to_the_machine() {
        let (_home, mut profile) = lab("[profile lab]\nregion = eu-west-1");
        assert!(profile.source(&Secrets::of(Vec::new())).unwrap().is_none());
        profile.name = "default".to_owned();
        profile.is_named = false;
        assert!(profile.source(&Secrets::of(Vec::new())).unwrap().is_none());
    }

    #[test]
    fn a_named_profile_that_cannot_be_used_is_told() {
        for (text, words) in [
            ("[default]\nregion = a", "no such profile is in ~/.aws/config or"),
            (
                "[profile lab]\nrole_arn = s3cret\nsource_profile = default",
                "(AWS_PROFILE): it has role_arn, which is not supported; supported are",
            ),
            ("[lab]\nsso_session = corp", "it has sso_session, which is not supported"),
            ("[lab]\naws_access_key_id = s3cret", "it has a key that is not complete"),
            (
                "[lab]\naws_access_key_id = a\naws_secret_access_key = s3cr\u{e4}t",
                "it has a key that is not complete",
            ),
            (
                "[lab]\ncredential_process = echo s3cret >&2; exit 3",
                "its credential_process ended with exit status: 3; run it by hand",
            ),
        ] {
            let (_home, profile) = lab(text);
            let told = profile.source(&Secrets::of(Vec::new())).err().unwrap();
            assert!(told.contains(words) && told.contains("`lab`"), "{told}");
            assert!(!told.contains("s3cr") && !told.contains('\n'), "{told}");
        }
    }
}
