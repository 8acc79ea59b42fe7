//! Whether a page of a listing is one, has all its keys as they are, and says where the next one begins.
//!
//! `object_store` takes a page without a continuation token for the last one, even if the server says that there are
//! more, or says something else: a part of a bucket would silently be the data set. And it leaves out a `/` that a key
//! begins or ends with, so that another object would be read in its place. This looks at nothing else in a page.

use hyper::Uri;

use super::failure::Failure;

/// Whether such a page is asked for that follows another one.
pub(super) fn follows(uri: &Uri) -> bool {
    let options = uri.query().unwrap_or_default();
    let marks = ["continuation-token=", "marker="];
    let is_mark =
        |option: &str, mark: &str| option.len() > mark.len() && option.starts_with(mark);
    let is_listing =
        options.split('&').any(|it| ["list-type=2", "comp=list"].contains(&it));
    is_listing && options.split('&').any(|it| marks.iter().any(|mark| is_mark(it, mark)))
}

/// Names of what a page says of each object.
struct Names {
    object: &'static str,
    key: &'static str,
    len: &'static str,
}

const OF_S3: Names = Names { object: "Contents", key: "Key", len: "Size" };
const OF_AZURE: Names = Names { object: "Blob", key: "Name", len: "Content-Length" };

/// Refuses an answer that is a page of S3's listing, as Google speaks it, too, and is neither the last one nor has what
/// the next one is asked for with. Refuses keys, also of Azure's, that would be others.
pub(super) fn check(uri: &Uri, answer: &[u8]) -> Result<(), Failure> {
    let options = uri.query().unwrap_or_default();
    let has = |wanted: &str| options.split('&').any(|option| option == wanted);
    if has("comp=list") {
        return check_ends(&String::from_utf8_lossy(answer), &OF_AZURE);
    }
    if !has("list-type=2") {
        return Ok(());
    }
    let text = String::from_utf8_lossy(answer);
    check_ends(&text, &OF_S3)?;
    if !text.contains("<ListBucketResult") {
        return Err(Failure::Unusable(
            "the server's answer is no page of a listing; check the endpoint, and try again"
                .to_owned(),
        ));
    }
    if let Some((_, rest)) = text.split_once("<Key>/") {
        let key: String =
            rest.split("</").next().unwrap_or_default().chars().take(200).collect();
        return Err(Failure::Unusable(format!(
            "the key `/{}` has an empty part in it, so it cannot be the name of a file; rename or remove this object, \
             or give the URL of a folder without it",
            key.escape_debug()
        )));
    }
    let is_cut = element(&text, "IsTruncated")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let token = element(&text, "NextContinuationToken");
    if is_cut && token.is_none_or(str::is_empty) {
        return Err(Failure::Unusable(
            "the server's listing is incomplete: it says that there are more objects \
             (IsTruncated) but not how to ask for them (no NextContinuationToken); use a server \
             that supports ListObjectsV2"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Refuses a key that ends in `/` and has bytes. Without any, it stands for a folder.
fn check_ends(text: &str, names: &Names) -> Result<(), Failure> {
    let (key, object) = (names.key, names.object);
    for (at, _) in text.match_indices(&format!("/</{key}>")) {
        let (before, after) = text.split_at(at + 1);
        let begins = before.rfind(&format!("<{object}>")).unwrap_or(0);
        let ends = after.find(&format!("</{object}>")).unwrap_or(after.len());
        let whole = &text[begins..at + 1 + ends];
        if element(whole, names.len) == Some("0") {
            continue;
        }
        let name = element(whole, key).unwrap_or_default();
        let name: String = name.chars().take(200).collect();
        return Err(Failure::Unusable(format!(
            "the key `{}` ends in `/` and has bytes, so it cannot be the name of a file; rename or remove this object, \
             or give the URL of a folder without it",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// What is between `<name>` and its end. No name of an object has a `<`: in XML it is written in another way.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.rsplit_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_the_last_one_says_where_the_next_one_begins() {
        let uri = |options: &str| format!("http://h/b?{options}").parse::<Uri>().unwrap();
        let listing = uri("list-type=2&prefix=x%2F");
        let page = |inner: &str| format!("<ListBucketResult>{inner}</ListBucketResult>");
        let more = "<IsTruncated>true</IsTruncated>";
        let next = "<NextContinuationToken>a</NextContinuationToken>";
        for whole in [
            page("<IsTruncated>false</IsTruncated>"),
            page("<Contents><Key>&lt;IsTruncated>true</Key></Contents>"),
            page(&format!("{more}{next}")),
            page(&format!("{next}<Contents><Key>a</Key></Contents>{more}")),
            page("<NextMarker/>"),
            page(
                "<Contents><Key>a/</Key><Size>0</Size></Contents><Contents><Key>b</Key><Size>1</Size></Contents>",
            ),
            "<ListBucketResult/>".to_owned(),
        ] {
            assert_eq!(check(&listing, whole.as_bytes()), Ok(()), "{whole}");
        }
        for cut in [
            String::new(),
            "<Error><Code>InternalError</Code></Error>".to_owned(),
            page("<Contents><Key>/cat/1.jpg</Key></Contents>"),
            page(
                "<Contents><Size>0</Size><Key>a/</Key></Contents><Contents><Size>1</Size><Key>b/</Key></Contents>",
            ),
            page(more),
            page("<IsTruncated> True\n</IsTruncated><NextMarker>a</NextMarker>"),
            page(&format!("{more}<NextContinuationToken/>")),
            page(&format!("{more}<NextContinuationToken> </NextContinuationToken>")),
        ] {
            let failure = check(&listing, cut.as_bytes()).unwrap_err();
            assert!(!failure.is_transient(), "{cut}");
            // Of another request, nothing is known.
            assert_eq!(check(&uri("comp=list"), cut.as_bytes()), Ok(()), "{cut}");
        }
    }

    #[test]
    fn the_first_page_is_told_from_those_that_follow() {
        for (options, follows) in [
            ("list-type=2&prefix=x", false),
            ("list-type=2&continuation-token=", false),
            ("list-type=2&continuation-token=a&prefix=marker", true),
            ("comp=list&restype=container&marker=a", true),
            ("comp=list&restype=container", false),
            ("marker=a", false),
        ] {
            let uri = format!("http://h/b?{options}").parse::<Uri>().unwrap();
            assert_eq!(super::follows(&uri), follows, "{options}");
        }
    }

    #[test]
    fn a_key_of_azure_that_ends_in_a_slash_has_no_bytes() {
        let listing = "http://h/b?restype=container&comp=list".parse::<Uri>().unwrap();
        let page = |len: u32| {
            format!(
                "<Blobs><Blob><Name>a/</Name><Properties><Content-Length>{len}</Content-Length>\
                 </Properties></Blob><Blob><Name>b</Name><Properties><Content-Length>7\
                 </Content-Length></Properties></Blob></Blobs>"
            )
        };
        assert_eq!(check(&listing, page(0).as_bytes()), Ok(()));
        let Err(Failure::Unusable(why)) = check(&listing, page(1).as_bytes()) else {
            panic!("it is another object")
        };
        assert!(why.starts_with("the key `a/` ends in `/` and has bytes"), "{why}");
    }
}
