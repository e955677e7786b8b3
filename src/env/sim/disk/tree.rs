//! The folders and files of one disk, as processes see them and as the medium holds them.
//!
//! Pure state: no time, no faults but those of the medium. Every folder has two tables of entries, `current` and
//! `durable`; a change of entries (creation, removal, rename) applies to `current` at once and waits in `pending` until a
//! flush of a folder it concerns. A power loss lets each waiting change happen or not, on its own, except that changes of one
//! name happen in order. A rename is one change even between two folders: its two halves are never separated.

use super::super::dice::Dice;
use super::image::{Image, Survival};
use super::media_error;
use crate::disk::{DirEntry, OpenMode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u64);

const ROOT: NodeId = NodeId(0);

#[derive(Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    next_node: u64,
    pending: Vec<Entries>,
    next_change: u64,
    /// Handles of the running process.
    opened: BTreeMap<NodeId, usize>,
}

#[derive(Clone)]
enum Node {
    File(Image),
    Dir(Dir),
}

#[derive(Clone, Default)]
struct Dir {
    current: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
}

/// A name in a folder.
type Slot = (NodeId, String);

/// One change of entries; all of its slots change together or none does.
#[derive(Clone)]
struct Entries {
    number: u64,
    slots: Vec<(Slot, Option<NodeId>)>,
}

impl Entries {
    fn concerns(&self, dir: NodeId) -> bool {
        self.slots.iter().any(|((of, _), _)| *of == dir)
    }

    fn meets(&self, slots: &BTreeSet<Slot>) -> bool {
        self.slots.iter().any(|(slot, _)| slots.contains(slot))
    }

    fn claim(&self, slots: &mut BTreeSet<Slot>) {
        slots.extend(self.slots.iter().map(|(slot, _)| slot.clone()));
    }
}

impl Tree {
    pub(super) fn new() -> Tree {
        let nodes = BTreeMap::from([(ROOT, Node::Dir(Dir::default()))]);
        Tree { nodes, next_node: 1, pending: Vec::new(), next_change: 0, opened: BTreeMap::new() }
    }

    pub(super) fn open(&mut self, path: &str, mode: OpenMode) -> io::Result<NodeId> {
        let (parent, name) = self.parent_of(path)?;
        match (self.dir(parent)?.current.get(name).copied(), mode) {
            (Some(_), OpenMode::CreateNew) => Err(ErrorKind::AlreadyExists.into()),
            (Some(found), _) => match self.nodes[&found] {
                Node::File(_) => Ok(found),
                Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
            },
            (None, OpenMode::Read | OpenMode::Write) => Err(ErrorKind::NotFound.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let file = self.add(Node::File(Image::default()));
                self.change(vec![((parent, name.to_owned()), Some(file))]);
                Ok(file)
            }
        }
    }

    /// The file stays readable while handles to it are open.
    pub(super) fn opened(&mut self, file: NodeId) {
        *self.opened.entry(file).or_default() += 1;
    }

    pub(super) fn closed(&mut self, file: NodeId) {
        let Some(count) = self.opened.get_mut(&file) else { return };
        *count -= 1;
        if *count == 0 {
            self.opened.remove(&file);
            self.sweep();
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from_dir, from_name) = self.parent_of(from)?;
        let (to_dir, to_name) = self.parent_of(to)?;
        let moved = *self.dir(from_dir)?.current.get(from_name).ok_or(ErrorKind::NotFound)?;
        let (source, target) = ((from_dir, from_name.to_owned()), (to_dir, to_name.to_owned()));
        if source == target {
            return Ok(());
        }
        if let Some(replaced) = self.dir(to_dir)?.current.get(to_name) {
            match (&self.nodes[&moved], &self.nodes[replaced]) {
                (Node::File(_), Node::File(_)) => {}
                (Node::Dir(_), Node::Dir(dir)) if dir.current.is_empty() => {}
                (Node::Dir(_), Node::Dir(_)) => return Err(ErrorKind::DirectoryNotEmpty.into()),
                (Node::File(_), Node::Dir(_)) => return Err(ErrorKind::IsADirectory.into()),
                (Node::Dir(_), Node::File(_)) => return Err(ErrorKind::NotADirectory.into()),
            }
        }
        self.change(vec![(source, None), (target, Some(moved))]);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let found = *self.dir(parent)?.current.get(name).ok_or(ErrorKind::NotFound)?;
        if matches!(self.nodes[&found], Node::Dir(_)) {
            return Err(ErrorKind::IsADirectory.into());
        }
        self.change(vec![((parent, name.to_owned()), None)]);
        Ok(())
    }

    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        let mut dir = ROOT;
        for name in components(path) {
            dir = match self.dir(dir)?.current.get(name) {
                Some(found) if matches!(self.nodes[found], Node::Dir(_)) => *found,
                Some(_) => return Err(ErrorKind::NotADirectory.into()),
                None => {
                    let made = self.add(Node::Dir(Dir::default()));
                    self.change(vec![((dir, name.to_owned()), Some(made))]);
                    made
                }
            };
        }
        Ok(())
    }

    /// Removes what is inside entry by entry, deepest first, as `rm -r` does: a power loss may undo any part of it.
    pub(super) fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let (parent, name) = match self.parent_of(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            parent => parent?,
        };
        let Some(found) = self.dir(parent)?.current.get(name).copied() else { return Ok(()) };
        if matches!(self.nodes[&found], Node::File(_)) {
            return Err(ErrorKind::NotADirectory.into());
        }
        self.empty(found);
        self.change(vec![((parent, name.to_owned()), None)]);
        Ok(())
    }

    fn empty(&mut self, dir: NodeId) {
        let Node::Dir(entries) = &self.nodes[&dir] else { return };
        for (name, inside) in entries.current.clone() {
            self.empty(inside);
            self.change(vec![((dir, name), None)]);
        }
    }

    pub(super) fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        let entries = &self.dir(self.find_dir(path)?)?.current;
        let is_dir = |id: &NodeId| matches!(self.nodes[id], Node::Dir(_));
        Ok(entries.iter().map(|(name, id)| DirEntry { name: name.clone(), is_dir: is_dir(id) }).collect())
    }

    /// What a flush of a folder that begins now covers.
    pub(super) fn mark(&self) -> u64 {
        self.next_change
    }

    /// Makes the changes of this folder's entries before `mark` durable, and the earlier ones they build on.
    pub(super) fn sync_dir(&mut self, path: &str, mark: u64) -> io::Result<()> {
        let dir = self.find_dir(path)?;
        let mut needed = BTreeSet::new();
        let mut covered = BTreeSet::new();
        for change in self.pending.iter().rev().filter(|change| change.number < mark) {
            if change.concerns(dir) || change.meets(&needed) {
                change.claim(&mut needed);
                covered.insert(change.number);
            }
        }
        let (done, left) = std::mem::take(&mut self.pending).into_iter().partition(|c| covered.contains(&c.number));
        self.pending = left;
        let done: Vec<Entries> = done;
        done.iter().for_each(|change| self.apply(change, |dir| &mut dir.durable));
        self.sweep_after(&done);
        Ok(())
    }

    /// A flush of the folder failed: what it should have covered stays visible and never becomes durable.
    pub(super) fn fail_sync_dir(&mut self, path: &str) {
        if let Ok(dir) = self.find_dir(path) {
            self.pending.retain(|change| !change.concerns(dir));
        }
    }

    pub(super) fn file(&self, id: NodeId) -> io::Result<&Image> {
        match self.nodes.get(&id) {
            Some(Node::File(image)) => Ok(image),
            _ => Err(media_error()),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> io::Result<&mut Image> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(image)) => Ok(image),
            _ => Err(media_error()),
        }
    }

    /// The file a process would find at `path`.
    pub(super) fn find_file(&self, path: &str) -> Option<NodeId> {
        let (parent, name) = self.parent_of(path).ok()?;
        let found = *self.dir(parent).ok()?.current.get(name)?;
        matches!(self.nodes[&found], Node::File(_)).then_some(found)
    }

    /// The file that is at `path` on the medium.
    pub(super) fn find_durable(&self, path: &str) -> Option<&Image> {
        let mut at = ROOT;
        for name in components(path) {
            let Node::Dir(dir) = &self.nodes[&at] else { return None };
            at = *dir.durable.get(name)?;
        }
        self.file(at).ok()
    }

    /// Whether a power loss leaves at `path` the file that is there now.
    pub(super) fn is_entry_durable(&self, path: &str) -> bool {
        let mut at = ROOT;
        for name in components(path) {
            let Node::Dir(dir) = &self.nodes[&at] else { return false };
            let slot = (at, name.to_owned());
            let waiting = self.pending.iter().any(|change| change.slots.iter().any(|(of, _)| *of == slot));
            match (dir.current.get(name), dir.durable.get(name)) {
                (Some(current), Some(durable)) if current == durable && !waiting => at = *current,
                _ => return false,
            }
        }
        true
    }

    /// Whether the file has a path with `part` in it.
    pub(super) fn is_named(&self, file: NodeId, part: &str) -> bool {
        part.is_empty() || self.path_of(ROOT, "", file).is_some_and(|path| path.contains(part))
    }

    fn path_of(&self, dir: NodeId, prefix: &str, file: NodeId) -> Option<String> {
        let Node::Dir(entries) = &self.nodes[&dir] else { return None };
        entries.current.iter().find_map(|(name, id)| {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if *id == file { Some(path) } else { self.path_of(*id, &path, file) }
        })
    }

    /// Every file with its length, in byte order of the paths' components.
    pub(super) fn files(&self) -> Vec<(String, u64)> {
        let mut files = Vec::new();
        self.walk(ROOT, "", &mut |path, image| files.push((path.to_owned(), image.len())));
        files
    }

    fn walk(&self, dir: NodeId, prefix: &str, visit: &mut impl FnMut(&str, &Image)) {
        let Node::Dir(entries) = &self.nodes[&dir] else { return };
        for (name, id) in &entries.current {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            match &self.nodes[id] {
                Node::File(image) => visit(&path, image),
                Node::Dir(_) => self.walk(*id, &path, visit),
            }
        }
    }

    /// Space taken by files that are linked or open.
    pub(super) fn used(&self) -> u64 {
        let mut linked = BTreeSet::new();
        self.reach(ROOT, &mut linked, &|dir: &Dir| dir.current.values().copied().collect());
        linked.extend(self.opened.keys());
        linked.iter().filter_map(|id| self.file(*id).ok()).map(Image::footprint).sum()
    }

    /// Puts a durable file there, making its folders.
    pub(super) fn plant(&mut self, path: &str, bytes: Vec<u8>) -> io::Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.create_dir(folder)?;
        let parent = self.find_dir(folder)?;
        let file = self.add(Node::File(Image::holding(bytes)));
        self.change(vec![((parent, name.to_owned()), Some(file))]);
        self.settle_entries();
        Ok(())
    }

    /// Removes a file, durably.
    pub(super) fn uproot(&mut self, path: &str) -> io::Result<()> {
        self.remove(path)?;
        self.settle_entries();
        Ok(())
    }

    fn settle_entries(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|change| self.apply(change, |dir| &mut dir.durable));
        self.sweep();
    }

    pub(super) fn drop_caches(&mut self) {
        self.images().for_each(Image::drop_cache);
    }

    fn images(&mut self) -> impl Iterator<Item = &mut Image> {
        self.nodes.values_mut().filter_map(|node| match node {
            Node::File(image) => Some(image),
            Node::Dir(_) => None,
        })
    }

    /// The process died: its handles are gone.
    pub(super) fn close_all(&mut self) {
        self.opened.clear();
        self.sweep();
    }

    pub(super) fn power_loss(&mut self, dice: &mut Dice) {
        self.opened.clear();
        self.lose_entries(dice);
        let survival = Survival::draw(dice);
        for image in self.images() {
            // Mostly one fate for the disk as a whole; sometimes each file has its own.
            let survival = if dice.percent(25) { Survival::draw(dice) } else { survival };
            image.power_loss(survival, dice);
        }
        self.sweep();
    }

    fn lose_entries(&mut self, dice: &mut Dice) {
        let chance = *dice.pick(&[0, 50, 50, 100]);
        let mut undone = BTreeSet::new();
        for change in std::mem::take(&mut self.pending) {
            if !change.meets(&undone) && dice.percent(chance) {
                self.apply(&change, |dir| &mut dir.durable);
            } else {
                change.claim(&mut undone);
            }
        }
        for node in self.nodes.values_mut() {
            if let Node::Dir(dir) = node {
                dir.current = dir.durable.clone();
            }
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    fn change(&mut self, slots: Vec<(Slot, Option<NodeId>)>) {
        let change = Entries { number: self.next_change, slots };
        self.next_change += 1;
        self.apply(&change, |dir| &mut dir.current);
        self.pending.push(change);
    }

    fn apply(&mut self, change: &Entries, table: impl Fn(&mut Dir) -> &mut BTreeMap<String, NodeId>) {
        for ((dir, name), target) in &change.slots {
            // A folder that is gone takes its entries' changes with it.
            let Some(Node::Dir(dir)) = self.nodes.get_mut(dir) else { continue };
            match target {
                Some(id) => table(dir).insert(name.clone(), *id),
                None => table(dir).remove(name),
            };
        }
    }

    fn sweep_after(&mut self, done: &[Entries]) {
        if done.iter().any(|change| change.slots.iter().any(|(_, target)| target.is_none())) {
            self.sweep();
        }
    }

    /// Forgets nodes that no folder, waiting change or handle leads to, and changes in folders that are forgotten.
    fn sweep(&mut self) {
        let mut seen = BTreeSet::new();
        let both = |dir: &Dir| dir.current.values().chain(dir.durable.values()).copied().collect();
        for start in self.opened.keys().copied().chain([ROOT]) {
            self.reach(start, &mut seen, &both);
        }
        let mut known = 0;
        while known != seen.len() {
            known = seen.len();
            for ((dir, _), target) in self.pending.iter().flat_map(|change| &change.slots) {
                if let (true, Some(target)) = (seen.contains(dir), target) {
                    self.reach(*target, &mut seen, &both);
                }
            }
        }
        self.nodes.retain(|id, _| seen.contains(id));
        self.pending.retain(|change| change.slots.iter().any(|((dir, _), _)| seen.contains(dir)));
    }

    fn reach(&self, from: NodeId, seen: &mut BTreeSet<NodeId>, inside: &impl Fn(&Dir) -> Vec<NodeId>) {
        if !self.nodes.contains_key(&from) || !seen.insert(from) {
            return;
        }
        if let Node::Dir(dir) = &self.nodes[&from] {
            inside(dir).into_iter().for_each(|id| self.reach(id, seen, inside));
        }
    }

    fn dir(&self, id: NodeId) -> io::Result<&Dir> {
        match &self.nodes[&id] {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn find_dir(&self, path: &str) -> io::Result<NodeId> {
        let mut at = ROOT;
        for name in components(path) {
            at = *self.dir(at)?.current.get(name).ok_or(ErrorKind::NotFound)?;
        }
        self.dir(at).map(|_| at)
    }

    fn parent_of<'a>(&self, path: &'a str) -> io::Result<(NodeId, &'a str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        assert!(!name.is_empty(), "path {path:?} names no file");
        Ok((self.find_dir(folder)?, name))
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    assert!(
        !path.starts_with('/') && !path.split('/').any(|part| part == ".."),
        "path {path:?} leaves the data folder"
    );
    path.split('/').filter(|part| !part.is_empty())
}
