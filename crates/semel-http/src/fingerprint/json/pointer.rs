//! JSON pointers of a rule, as a tree that is walked along with the body.

use std::fmt;

/// Index into [`Selection::nodes`].
pub(super) type NodeId = u32;

#[derive(Clone, Debug, Default)]
struct Node {
    token: Box<str>,
    children: Vec<NodeId>,
    include: bool,
    exclude: bool,
    unordered: bool,
    /// Some node below is an `include`: the containers on the way to it stay.
    leads: bool,
}

/// What counts of a body. Empty: all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    nodes: Vec<Node>,
    has_includes: bool,
}

/// Where the walk stands in the selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    node: Option<NodeId>,
    included: bool,
    excluded: bool,
}

/// Not a JSON pointer: it does not begin with a slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointerError {
    pointer: String,
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a JSON pointer: it is empty or begins with a slash, as `/items/0/id`", self.pointer)
    }
}

impl std::error::Error for PointerError {}

impl Selection {
    pub(super) fn include(&mut self, pointer: &str) -> Result<(), PointerError> {
        let path = self.reach(pointer)?;
        self.has_includes = true;
        let (last, way) = path.split_last().expect("the root is always on the path");
        self.nodes[*last as usize].include = true;
        for &node in way {
            self.nodes[node as usize].leads = true;
        }
        Ok(())
    }

    pub(super) fn exclude(&mut self, pointer: &str) -> Result<(), PointerError> {
        let path = self.reach(pointer)?;
        self.nodes[path[path.len() - 1] as usize].exclude = true;
        Ok(())
    }

    pub(super) fn unordered(&mut self, pointer: &str) -> Result<(), PointerError> {
        let path = self.reach(pointer)?;
        self.nodes[path[path.len() - 1] as usize].unordered = true;
        Ok(())
    }

    /// The nodes from the root to `pointer`, made where missing.
    fn reach(&mut self, pointer: &str) -> Result<Vec<NodeId>, PointerError> {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut path = vec![0];
        let tokens = match pointer.strip_prefix('/') {
            Some(rest) => rest.split('/'),
            None if pointer.is_empty() => return Ok(path),
            None => return Err(PointerError { pointer: pointer.to_owned() }),
        };
        let mut at: NodeId = 0;
        for token in tokens {
            let token = token.replace("~1", "/").replace("~0", "~");
            let known = self.nodes[at as usize].children.iter().find(|c| *self.nodes[**c as usize].token == *token);
            at = match known {
                Some(&child) => child,
                None => {
                    let child = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
                    self.nodes.push(Node { token: token.into(), ..Node::default() });
                    self.nodes[at as usize].children.push(child);
                    child
                }
            };
            path.push(at);
        }
        Ok(path)
    }

    pub(super) fn root(&self) -> Place {
        let outside = Place { node: None, included: !self.has_includes, excluded: false };
        if self.nodes.is_empty() { outside } else { self.enter(outside, Some(0)) }
    }

    pub(super) fn member(&self, parent: Place, name: &[u8]) -> Place {
        self.step(parent, |token| token.as_bytes() == name)
    }

    pub(super) fn element(&self, parent: Place, index: usize) -> Place {
        self.step(parent, |token| token == "*" || token.parse() == Ok(index))
    }

    fn step(&self, parent: Place, is: impl Fn(&str) -> bool) -> Place {
        let Some(node) = parent.node else {
            return Place { node: None, included: parent.included, excluded: false };
        };
        let child = self.nodes[node as usize].children.iter().copied().find(|c| is(&self.nodes[*c as usize].token));
        self.enter(parent, child)
    }

    fn enter(&self, parent: Place, node: Option<NodeId>) -> Place {
        let here = node.map(|n| &self.nodes[n as usize]);
        Place {
            node,
            included: parent.included || here.is_some_and(|n| n.include),
            excluded: here.is_some_and(|n| n.exclude),
        }
    }

    pub(super) fn is_unordered(&self, place: Place) -> bool {
        place.node.is_some_and(|n| self.nodes[n as usize].unordered)
    }

    /// Whether the value at `place` stays in the canonical form.
    pub(super) fn keeps(&self, place: Place, container: bool) -> bool {
        !place.excluded && (place.included || (container && place.node.is_some_and(|n| self.nodes[n as usize].leads)))
    }

    pub(super) fn parameters(&self) -> u32 {
        if self.nodes.is_empty() {
            return 0;
        }
        let mut lines = Vec::new();
        self.describe(0, &mut String::new(), &mut lines);
        lines.sort_unstable();
        let digest = blake3::hash(lines.join("\n").as_bytes());
        // Zero means that there are no parameters.
        digest.as_bytes().first_chunk::<4>().map_or(1, |four| u32::from_be_bytes(*four).max(1))
    }

    fn describe(&self, node: NodeId, path: &mut String, out: &mut Vec<String>) {
        let here = &self.nodes[node as usize];
        for (set, letter) in [(here.include, '+'), (here.exclude, '-'), (here.unordered, '~')] {
            if set {
                out.push(format!("{letter}{path}"));
            }
        }
        for &child in &here.children {
            let len = path.len();
            path.push('/');
            path.push_str(&self.nodes[child as usize].token.replace('~', "~0").replace('/', "~1"));
            self.describe(child, path, out);
            path.truncate(len);
        }
    }
}
