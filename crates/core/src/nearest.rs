//! The name that somebody meant: for messages about one that does not exist. It knows the names
//! that others use for our settings, and none of our own: those are given.

// Letters to change, add, leave out or swap with their neighbour.
use strsim::osa_distance as distance;

/// What people call things elsewhere, and what they are called here.
const ELSEWHERE: [(&str, &str); 20] = [
    ("float32", "f32"),
    ("float", "f32"),
    ("torch.float32", "f32"),
    ("float16", "f16"),
    ("half", "f16"),
    ("torch.float16", "f16"),
    ("bfloat16", "bf16"),
    ("torch.bfloat16", "bf16"),
    ("uint8", "u8"),
    ("torch.uint8", "u8"),
    ("channels_last", "nhwc"),
    ("channels_first", "nchw"),
    ("contiguous", "nchw"),
    ("hwc", "nhwc"),
    ("chw", "nchw"),
    ("keep", "pad"),
    ("num_workers", "workers"),
    ("cuda", "cuda:0"),
    ("gpu", "cuda:0"),
    ("gpu:0", "cuda:0"),
];

/// A name in snake case and small letters: `RandomResizedCrop` is a class's name elsewhere, and
/// `random_resized_crop` an op's here.
fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_small {
            plain.push('_');
        }
        after_small = letter.is_lowercase() || letter.is_ascii_digit();
        plain.extend(letter.to_lowercase().map(|c| if c == '-' { '_' } else { c }));
    }
    plain
}

/// The one of `names` closest to `text`, if any is close.
#[must_use]
pub fn nearest<'a>(
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let text = plain(text);
    let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| *theirs == text);
    let known = |name: &str| elsewhere.is_some_and(|(_, ours)| *ours == name);
    let most = text.len() / 3;
    let rank = |name: &&str| match known(name) {
        true => 0,
        false => distance(&text, &plain(name)),
    };
    let best = names.into_iter().min_by_key(rank)?;
    (rank(&best) <= most).then_some(best)
}

/// `; did you mean ...?`, to be appended to a message, or nothing.
#[must_use]
pub fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let meant = nearest(text, names);
    meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found_and_what_was_not_is_left_alone() {
        let recipes = ["imagenet-train", "imagenet-eval", "raw"];
        assert_eq!(nearest("imagenet-trian", recipes), Some("imagenet-train"));
        assert_eq!(nearest("ImageNet-Eval", recipes), Some("imagenet-eval"));
        assert_eq!(nearest("resnet", recipes), None);
        assert_eq!(nearest("", recipes), None);
        let types = ["u8", "f32", "f16", "bf16"];
        assert_eq!(nearest("torch.bfloat16", types), Some("bf16"));
        assert_eq!(nearest("NHWC", ["nchw", "nhwc"]), Some("nhwc"));
        assert_eq!(nearest("channels_last", ["nchw", "nhwc"]), Some("nhwc"));
        let ops = ["resize", "random_resized_crop", "random_crop"];
        assert_eq!(nearest("RandomResizedCrop", ops), Some("random_resized_crop"));
        assert_eq!(nearest("random-crop", ops), Some("random_crop"));
        assert_eq!(did_you_mean("xyz", ["a"]), "");
        assert_eq!(
            did_you_mean("bacth_size", ["batch_size"]),
            "; did you mean `batch_size`?"
        );
    }

    #[test]
    fn distances() {
        for (a, b, n) in
            [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), n, "{a} {b}");
            assert_eq!(distance(b, a), n, "{b} {a}");
        }
    }
}
