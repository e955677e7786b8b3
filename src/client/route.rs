//! Which region a key belongs to, and a batch's share of each. Decides; asks nobody.

use crate::client::limits::{OPERATION_BYTES, READ_KEYS_MAX, WRITE_BYTES_MAX, WRITE_OPERATIONS_MAX};
use crate::protocol::{RegionPlace, TableMap, WriteOperation};
use crate::region::RegionId;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The place of the region that holds `key`, given as the user says it. `None` if the map has a hole there.
pub fn locate<'a>(map: &'a TableMap, key: &[u8]) -> Option<&'a RegionPlace> {
    let salt = map.spec.salt.map(|salt| salt.prefix(key));
    let prefix = salt.as_ref().map_or(&[][..], |salt| &salt[..]);
    let compare = |bound: &Bytes| compare_stored(prefix, key, bound);
    let after = map.regions.partition_point(|place| compare(&place.range.start).is_ge());
    let place = &map.regions[after.checked_sub(1)?];
    place.range.end.as_ref().is_none_or(|end| compare(end).is_lt()).then_some(place)
}

pub fn find(map: &TableMap, region: RegionId) -> Option<&RegionPlace> {
    map.regions.iter().find(|place| place.config.region == region)
}

/// The region that holds the stored key `at` and what comes after it.
pub fn locate_stored<'a>(map: &'a TableMap, at: &[u8]) -> Option<&'a RegionPlace> {
    map.regions.iter().find(|place| place.range.contains(at))
}

/// Compares the stored key `prefix key` with `bound`, without making it.
fn compare_stored(prefix: &[u8], key: &[u8], bound: &[u8]) -> Ordering {
    let shared = prefix.len().min(bound.len());
    prefix.cmp(&bound[..shared]).then_with(|| key.cmp(&bound[shared..]))
}

/// Keys of a batch, named by their places in it, that one request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Share {
    pub place: RegionPlace,
    pub members: Vec<usize>,
}

/// A key that no region of the map holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Hole;

/// Sorts the members of a batch by region; within one, the order stays.
fn by_region<'a>(
    map: &TableMap,
    members: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> &'a [u8],
) -> Result<Vec<Share>, Hole> {
    let mut shares: BTreeMap<RegionId, Share> = BTreeMap::new();
    for member in members {
        let place = locate(map, key(member)).ok_or(Hole)?;
        let share = || Share { place: place.clone(), members: Vec::new() };
        shares.entry(place.config.region).or_insert_with(share).members.push(member);
    }
    Ok(shares.into_values().collect())
}

/// Requests for the keys `members` of `keys`, each small enough to be one.
pub fn share_reads(map: &TableMap, keys: &[Bytes], members: &[usize]) -> Result<Vec<Share>, Hole> {
    let shares = by_region(map, members.iter().copied(), |member| &keys[member])?;
    let cut = |share: Share| {
        let chunks = share.members.chunks(READ_KEYS_MAX).map(<[usize]>::to_vec);
        let place = share.place;
        chunks.map(move |members| Share { place: place.clone(), members }).collect::<Vec<_>>()
    };
    Ok(shares.into_iter().flat_map(cut).collect())
}

/// The operations `members` for each region. Those of one go one after the other ([`cut_writes`]).
pub fn share_writes(map: &TableMap, operations: &[WriteOperation], members: &[usize]) -> Result<Vec<Share>, Hole> {
    by_region(map, members.iter().copied(), |member| operations[member].key())
}

/// Runs of `members`, each small enough for one request.
pub fn cut_writes<'a>(operations: &[WriteOperation], members: &'a [usize]) -> Vec<&'a [usize]> {
    let mut cuts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, &member) in members.iter().enumerate() {
        let len = operation_len(&operations[member]);
        if at > start && (at - start == WRITE_OPERATIONS_MAX || bytes + len > WRITE_BYTES_MAX) {
            cuts.push(&members[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += len;
    }
    cuts.push(&members[start..]);
    cuts
}

/// About how long `operation` is in a request; never less than it is.
pub fn operation_len(operation: &WriteOperation) -> usize {
    let values = match operation {
        WriteOperation::Put { value, .. } => value.len(),
        WriteOperation::Append { suffix, .. } => suffix.len(),
        WriteOperation::CompareAndSet { expected, new, .. } => {
            [expected, new].into_iter().flatten().map(Bytes::len).sum()
        }
        WriteOperation::Delete { .. } | WriteOperation::Increment { .. } => 0,
    };
    OPERATION_BYTES + operation.key().len() + values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{KeyRange, RegionConfig, Salt, ServerId, TableSpec, even_splits};
    use proptest::prelude::*;

    fn map(salt: Option<Salt>, splits: &[Bytes]) -> TableMap {
        let regions = KeyRange::between(splits).into_iter().zip(1..).map(|(range, number)| RegionPlace {
            range,
            config: RegionConfig::initial(RegionId(number), vec![ServerId(1)]),
            address: None,
        });
        TableMap {
            name: "a:b".parse().unwrap(),
            spec: TableSpec { salt, ..TableSpec::new(1) },
            regions: regions.collect(),
        }
    }

    proptest! {
        #[test]
        fn a_key_is_where_its_stored_form_is(
            key in proptest::collection::vec(0u8..4, 0..7),
            splits in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 1..6), 0..6),
            salted: bool,
        ) {
            let splits: Vec<Bytes> = match salted {
                true => even_splits(splits.len() as u32 + 1),
                false => splits.into_iter().map(Bytes::from).collect(),
            };
            let map = map(salted.then_some(Salt::Xxh32), &splits);
            let stored = map.spec.salt.map_or(Bytes::from(key.clone()), |salt| salt.stored_key(&key));
            let expected = map.regions.iter().find(|place| place.range.contains(&stored));
            prop_assert_eq!(locate(&map, &key), expected);
        }

        #[test]
        fn the_comparison_is_that_of_whole_keys(
            prefix in proptest::collection::vec(0u8..3, 0..5),
            key in proptest::collection::vec(0u8..3, 0..5),
            bound in proptest::collection::vec(0u8..3, 0..7),
        ) {
            prop_assert_eq!(compare_stored(&prefix, &key, &bound), [prefix.clone(), key.clone()].concat().cmp(&bound));
        }
    }

    #[test]
    fn a_hole_in_the_map_is_no_region() {
        let mut map = map(None, &["b".into(), "c".into()]);
        map.regions.remove(1);
        assert_eq!(locate(&map, b"bb"), None);
        map.regions.remove(0);
        assert_eq!(locate(&map, b"a"), None);
        assert!(locate(&map, b"c").is_some());
        assert_eq!(share_reads(&map, &["a".into()], &[0]), Err(Hole));
    }

    #[test]
    fn a_batch_is_shared_out_in_order() {
        let map = map(None, &["m".into()]);
        let keys: Vec<Bytes> = ["a", "z", "b", "y", "a"].map(Bytes::from).into();
        let shares = share_reads(&map, &keys, &[0, 1, 2, 3, 4]).unwrap();
        let members: Vec<_> = shares.into_iter().map(|share| share.members).collect();
        assert_eq!(members, [vec![0, 2, 4], vec![1, 3]]);
        let many = vec![Bytes::from("k"); READ_KEYS_MAX + 1];
        let all: Vec<usize> = (0..many.len()).collect();
        let sizes: Vec<_> = share_reads(&map, &many, &all).unwrap().iter().map(|share| share.members.len()).collect();
        assert_eq!(sizes, [READ_KEYS_MAX, 1]);
    }

    #[test]
    fn writes_are_cut_by_number_and_by_bytes() {
        let sizes = |operations: &[WriteOperation]| {
            let all: Vec<usize> = (0..operations.len()).collect();
            cut_writes(operations, &all).into_iter().map(<[usize]>::len).collect::<Vec<_>>()
        };
        let delete = WriteOperation::Delete { key: "k".into() };
        assert_eq!(sizes(&vec![delete.clone(); WRITE_OPERATIONS_MAX + 1]), [WRITE_OPERATIONS_MAX, 1]);
        let put = |len| WriteOperation::Put { key: "k".into(), value: vec![0; len].into(), expiry_ms: None };
        let (big, small) = (put(WRITE_BYTES_MAX), put(10));
        assert_eq!(sizes(&[small.clone(), big.clone(), small.clone(), small.clone()]), [1, 1, 2]);
        assert_eq!(sizes(&[big]), [1]);
    }
}
