//! What somebody who mistyped a name may have meant.

/// The nearest of `valid`, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| distance(word, candidate) <= (word.chars().count() / 3).max(1);
    valid.into_iter().filter(near).min_by_key(|candidate| distance(word, candidate))
}

/// How many letters differ, are missing, are too many or changed places with their neighbour.
fn distance(word: &str, candidate: &str) -> usize {
    strsim::osa_distance(&word.to_lowercase().replace('-', "_"), candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let valid = ["listen", "data_dir", "masters", "secret_file", "id"];
        assert_eq!(nearest("lisen", valid), Some("listen"));
        assert_eq!(nearest("data-dir", valid), Some("data_dir"));
        assert_eq!(nearest("DataDir", valid), Some("data_dir"));
        assert_eq!(nearest("matsers", valid), Some("masters"));
        assert_eq!(nearest("replicas", valid), None);
        assert_eq!(nearest("", valid), None);
    }
}
