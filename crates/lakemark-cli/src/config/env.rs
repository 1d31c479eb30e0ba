//! `${NAME}` in a text takes the environment variable; `$$` is a literal `$`; any other `$` stands for itself.

use lakemark::{Error, Result};

/// Looks an environment variable up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text of the dotted `key`, with variables replaced. What a variable holds is not looked at again.
pub(super) fn expand(text: &str, key: &str, place: &str, env: Env<'_>) -> Result<String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let name = after.split_once('}').filter(|(name, _)| is_name(name));
            let (name, after) = name.ok_or_else(|| {
                Error::invalid(format!("`{key}` has a `${{` without a variable's name and a `}}`"))
                    .at(place)
                    .way("write `${NAME}` for a variable, or `$$` for a literal `$`")
            })?;
            let value = env(name).ok_or_else(|| {
                Error::invalid(format!("`{key}` needs the environment variable `{name}`, which is not set"))
                    .at(place)
                    .way(format!("set {name}, or write `$${{{name}}}` if the text is meant as it stands"))
            })?;
            expanded.push_str(&value);
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
