#include "cli/completion.h"

#include <fmt/format.h>

#include <map>

#include "cli/commands.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

std::vector<const Command*> shown_commands() {
  std::vector<const Command*> out;
  for (const Command* command : all_commands()) {
    if (!command->hidden) out.push_back(command);
  }
  return out;
}

// "job" of "job show".
std::string_view first_word(std::string_view name) { return name.substr(0, name.find(' ')); }

// Words that need one more word, with those: {"job", "show"}.
std::map<std::string_view, std::string> command_groups() {
  std::map<std::string_view, std::string> out;
  for (const Command* command : shown_commands()) {
    const auto parts = split_once(command->name, ' ');
    if (!parts) continue;
    std::string& flag_lists = out[parts->first];
    flag_lists += (flag_lists.empty() ? "" : " ") + std::string(parts->second);
  }
  return out;
}

// Each first word once, with what it does; a group's, with its words.
std::vector<std::pair<std::string_view, std::string>> first_words() {
  const auto groups = command_groups();
  std::vector<std::pair<std::string_view, std::string>> out;
  for (const Command* command : shown_commands()) {
    const std::string_view word = first_word(command->name);
    if (!out.empty() && out.back().first == word) continue;
    const auto group = groups.find(word);
    out.emplace_back(word, group == groups.end() ? std::string(command->summary) : group->second);
  }
  return out;
}

std::string command_names() {
  std::vector<std::string_view> names;
  for (const auto& [word, about] : first_words()) names.push_back(word);
  return join(names, " ");
}

std::string flag_names(const Command& command) {
  std::string out = "--help";
  for (const Flag& flag : command.flags) {
    if (!flag.hidden) out += fmt::format(" --{}", flag.name);
  }
  return out;
}

// The words after a flag that has choices; a flag with another value gets file names.
std::string bash_values(const Command& command) {
  std::string out;
  for (const Flag& flag : command.flags) {
    if (flag.choices.empty() && flag.names.empty()) continue;
    const std::string flag_lists =
        flag.names.empty() ? fmt::format("'{}'", flag.choices) : fmt::format("\"$(_rubato_names {})\"", flag.names);
    out += fmt::format("    '{}:--{}') COMPREPLY=($(compgen -W {} -- \"$cur\")); return ;;\n", command.name, flag.name,
                       flag_lists);
  }
  return out;
}

std::string bash_script() {
  std::string values, flag_lists, groups;
  for (const auto& [group, names] : command_groups()) {
    groups += fmt::format(
        "    {}) [ \"$COMP_CWORD\" -eq 2 ] && {{ COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return; }}\n"
        "      command=\"{} ${{COMP_WORDS[2]}}\" ;;\n",
        group, names, group);
  }
  for (const Command* command : shown_commands()) {
    values += bash_values(*command);
    flag_lists += fmt::format("    '{}') words='{}'; others='{}'; names='{}' ;;\n", command->name, flag_names(*command),
                         command->positional.choices, command->positional.names);
  }
  return fmt::format(R"sh(# rubato completion bash
# Names of jobs, nodes or clusters, of the cluster that the line names. Says nothing when there are none.
_rubato_names() {{
  local i cluster=()
  for ((i = 1; i + 1 < COMP_CWORD; i++)); do
    [ "${{COMP_WORDS[i]}}" = --cluster ] && cluster=(--cluster "${{COMP_WORDS[i+1]}}")
  done
  "${{COMP_WORDS[0]}}" complete "$1" "${{cluster[@]}}" 2>/dev/null
}}
_rubato() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words= others= names=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$cur"))
    return
  fi
  local command=${{COMP_WORDS[1]}}
  case "$command" in
{}  esac
  case "$command:$prev" in
{}  esac
  case "$command" in
{}  esac
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    *) if [ -n "$others" ]; then COMPREPLY=($(compgen -W "$others" -- "$cur"))
       else
         case "$names" in
           '') COMPREPLY=($(compgen -f -- "$cur")) ;;
           clusters) COMPREPLY=($(compgen -W "$(_rubato_names clusters)" -- "$cur") $(compgen -f -- "$cur")) ;;
           *) COMPREPLY=($(compgen -W "$(_rubato_names "$names")" -- "$cur")) ;;
         esac
       fi ;;
  esac
}}
complete -o filenames -F _rubato rubato
)sh",
                     command_names(), groups, values, flag_lists);
}

// zsh's _arguments takes ':' and brackets for its own.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']') out += '\\';
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out;
}

// What zsh completes with: choices, names that rubato lists, or files.
std::string zsh_action(std::string_view choices, std::string_view names) {
  if (!choices.empty()) return fmt::format("({})", choices);
  if (!names.empty()) return fmt::format(" _rubato_names {}", names);  // the space: without options of its caller
  return "_files";
}

std::string zsh_flags(const Command& command) {
  std::string out;
  for (const Flag& flag : command.flags) {
    if (flag.hidden) continue;
    std::string action;
    if (flag.kind != FlagKind::kSwitch) {
      action = fmt::format(":{}:{}", zsh_text(flag.value), zsh_action(flag.choices, flag.names));
    }
    const char* equals = flag.kind == FlagKind::kSwitch ? "" : "=";
    out += fmt::format("        '--{}{}[{}]{}' \\\n", flag.name, equals, zsh_text(flag.help), action);
  }
  const Positional& positional = command.positional;
  return out + fmt::format("        '{}:{}:{}'\n", positional.choices.empty() ? "*" : "1",
                           positional.choices.empty() && positional.names.empty() ? "file" : "word",
                           zsh_action(positional.choices, positional.names));
}

std::string zsh_script() {
  std::string list, groups, cases;
  for (const auto& [group, names] : command_groups()) {
    groups += fmt::format(
        "    {}) if (( CURRENT == 2 )); then compadd {}; return; fi\n"
        "      command=\"{} $words[2]\"; shift words; (( CURRENT-- )) ;;\n",
        group, names, group);
  }
  for (const auto& [word, about] : first_words()) list += fmt::format("    '{}:{}'\n", word, zsh_text(about));
  for (const Command* command : shown_commands()) {
    cases += fmt::format("    '{}')\n      _arguments '--help[explain]' \\\n{}      ;;\n", command->name,
                         zsh_flags(*command));
  }
  return fmt::format(R"sh(#compdef rubato
# Names of jobs, nodes or clusters, of the cluster that the line names. Says nothing when there are none.
_rubato_names() {{
  local -a names cluster
  local at=${{words[(i)--cluster]}}
  (( at + 1 < CURRENT )) && cluster=(--cluster $words[at+1])
  names=(${{(f)"$($rubato_program complete $1 $cluster 2>/dev/null)"}})
  compadd -a names
  [[ $1 = clusters ]] && _files -g '*.y(a|)ml'
}}
_rubato() {{
  local rubato_program=$words[1]
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _rubato ]; then _rubato "$@"; else compdef _rubato rubato; fi
)sh",
                     list, groups, cases);
}

std::string fish_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_script() {
  std::string out = R"(# rubato completion fish
# Names of jobs, nodes or clusters, of the cluster that the line names. Says nothing when there are none.
function __rubato_names
  set -l words (commandline -opc)
  set -l program $words[1]
  command -q $program; or return
  if set -l at (contains -i -- --cluster $words); and test (count $words) -gt $at
    $program complete $argv[1] --cluster $words[(math $at + 1)] 2>/dev/null
  else
    $program complete $argv[1] 2>/dev/null
  end
end
)";
  for (const auto& [word, about] : first_words()) {
    out += fmt::format("complete -c rubato -f -n __fish_use_subcommand -a {} -d '{}'\n", word, fish_text(about));
  }
  for (const Command* command : shown_commands()) {
    std::string seen = fmt::format("__fish_seen_subcommand_from {}", first_word(command->name));
    if (const auto parts = split_once(command->name, ' ')) {
      out += fmt::format("complete -c rubato -f -n '{}; and not __fish_seen_subcommand_from {}' -a {}\n", seen,
                         parts->second, parts->second);
      seen += fmt::format("; and __fish_seen_subcommand_from {}", parts->second);
    }
    const std::string when = fmt::format("-n '{}'", seen);
    for (const Flag& flag : command->flags) {
      if (flag.hidden) continue;
      const bool listed = !flag.choices.empty() || !flag.names.empty();
      std::string rest = flag.kind == FlagKind::kSwitch ? "" : listed ? " -x" : " -r";
      if (!flag.choices.empty()) rest += fmt::format(" -a '{}'", flag.choices);
      if (!flag.names.empty()) rest += fmt::format(" -a '(__rubato_names {})'", flag.names);
      if (flag.short_name != 0) rest += fmt::format(" -s {}", flag.short_name);
      out += fmt::format("complete -c rubato {} -l {}{} -d '{}'\n", when, flag.name, rest, fish_text(flag.help));
    }
    const Positional& positional = command->positional;
    if (!positional.choices.empty()) {
      out += fmt::format("complete -c rubato -f {} -a '{}'\n", when, positional.choices);
    }
    if (!positional.names.empty()) {
      // A cluster may be named by its file, too.
      out += fmt::format("complete -c rubato{} {} -a '(__rubato_names {})'\n",
                         positional.names == "clusters" ? "" : " -f", when, positional.names);
    }
  }
  return out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  throw Error(ErrorCode::kUsage,
              shell.empty() ? "which shell?" : fmt::format("no completion for the shell '{}'", shell), "",
              "write rubato completion bash, zsh or fish");
}

}  // namespace rubato::cli
