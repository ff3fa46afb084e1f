#include "terminal/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/text.h"

namespace rubato::cli {
namespace {

std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// argparse takes "-1" and "-.5" for values, since no flag of ours looks like a number.
bool looks_negative(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const std::string_view digits = word.substr(1);
  return std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

// As argparse: what has a space is a value, unless the space stands behind the "=" of a flag.
bool is_flag_word(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || looks_negative(word)) return false;
  const size_t space = word.find(' ');
  return space == std::string_view::npos || (word.starts_with("--") && word.find('=') < space);
}

constexpr int kFewWords = 3;  // of a command; where there may be more, the rest is a command for elsewhere, or jobs

class CommandLineParser {
 public:
  CommandLineParser(const Command& command, const std::vector<std::string>& args, const Environment& env)
      : command_(command), args_(args), env_(env) {}

  ParsedCommand parse() {
    while (at_ < args_.size() && !out_.help) {
      const std::string& word = args_[at_];
      if (word == "--") return take_positionals(at_ + 1, true);
      if (is_flag_word(word)) {
        ++at_;
        word.starts_with("--") ? take_long(word) : take_shorts(word);
      } else if (command_.positional.remainder) {
        return take_positionals(at_, false);
      } else {
        out_.positionals.push_back(word);
        ++at_;
      }
    }
    return finish();
  }

 private:
  // As argparse's REMAINDER: of the first "--" in the line, the one just before or just after the program is ours.
  ParsedCommand take_positionals(size_t from, bool saw_separator) {
    out_.positionals.insert(out_.positionals.end(), args_.begin() + static_cast<long>(from), args_.end());
    auto& arguments = out_.positionals;
    out_.separated = saw_separator;
    if (command_.positional.remainder && !saw_separator && arguments.size() > 1 && arguments[1] == "--") {
      arguments.erase(arguments.begin() + 1);
      out_.separated = true;
    }
    return finish();
  }

  ParsedCommand finish() {
    if (out_.help) return std::move(out_);
    const auto& positional = command_.positional;
    if (!positional.remainder && out_.positionals.size() > static_cast<size_t>(positional.at_most)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("unexpected argument '{}'", out_.positionals[static_cast<size_t>(positional.at_most)]),
                  "", see_help());
    }
    check_empty_words();
    for (const Flag& flag : command_.flags) take_environment(flag);
    return std::move(out_);
  }

  // An empty argument is, as a rule, a variable of the shell that is not set. `rubato down "$CLUSTER"` must not end
  // another cluster then. What belongs to a program may be empty.
  void check_empty_words() const {
    const auto& positional = command_.positional;
    const auto& arguments = out_.positionals;
    const size_t ours = positional.remainder ? 0 : positional.at_most > kFewWords ? 1 : arguments.size();
    for (size_t i = 0; i < std::min(ours, arguments.size()); ++i) {
      if (!arguments[i].empty()) continue;
      throw Error(ErrorCode::kUsage, fmt::format("an empty argument was given for {}", positional.name), "",
                  fmt::format("is a variable of your shell not set? {}", see_help()));
    }
  }

  void take_environment(const Flag& flag) {
    if (flag.env.empty() || out_.has(flag.name)) return;
    const auto it = env_.find(std::string(flag.env));
    if (it == env_.end() || it->second.empty()) return;
    Given given{.origin = std::string(flag.env), .joint = '='};
    if (flag.kind == FlagKind::kSwitch) {
      const std::string& value = it->second;
      if (value == "0" || value == "false") return;
      if (value != "1" && value != "true") {
        throw Error(ErrorCode::kUsage, fmt::format("{}={}: expected 0 or 1", flag.env, value), "",
                    fmt::format("unset {}, or set it to 1", flag.env));
      }
    } else {
      given.values.push_back(it->second);
    }
    out_.given.emplace(flag.name, std::move(given));
  }

  void take_long(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = with_dashes(std::string_view(word).substr(2, equals - 2));
    if (name == "help") {
      out_.help = true;
      return;
    }
    const Flag& flag = find_long(name, word.substr(0, equals));
    if (flag.kind == FlagKind::kSwitch) {
      if (equals != std::string::npos) {
        throw Error(ErrorCode::kUsage, fmt::format("--{} takes no value", flag.name), "", see_help());
      }
      store(flag, nullptr);
      return;
    }
    const std::string value = equals != std::string::npos ? word.substr(equals + 1) : next_value(flag);
    store(flag, &value);
  }

  // "-m", "-r3", "-r 3", "-r=3", and switches in front of another: "-mr3".
  void take_shorts(const std::string& word) {
    for (size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'h') {
        out_.help = true;
        return;
      }
      const auto flag = std::find_if(command_.flags.begin(), command_.flags.end(),
                                     [&](const Flag& f) { return f.short_name == word[i]; });
      if (flag == command_.flags.end()) throw unknown(word, with_dashes(word.substr(1)));
      if (flag->kind == FlagKind::kSwitch) {
        store(*flag, nullptr);
        continue;
      }
      std::string rest = word.substr(i + 1);
      if (rest.starts_with('=')) rest.erase(0, 1);
      const std::string value = i + 1 < word.size() ? rest : next_value(*flag);
      store(*flag, &value);
      return;
    }
  }

  const Flag& find_long(const std::string& name, const std::string& typed) const {
    std::vector<const Flag*> starting;
    for (const Flag& flag : command_.flags) {
      if (flag.name == name) return flag;
      if (flag.abbreviates && !name.empty() && flag.name.starts_with(name)) starting.push_back(&flag);
    }
    if (starting.size() == 1) return *starting.front();
    if (starting.empty()) throw unknown(typed, name);
    std::vector<std::string> all;
    for (const Flag* flag : starting) all.push_back(fmt::format("--{}", flag->name));
    throw Error(ErrorCode::kUsage, fmt::format("'{}' could be {}", typed, join(all, ", ")), "", "write the flag out");
  }

  std::string next_value(const Flag& flag) {
    if (at_ < args_.size() && !is_flag_word(args_[at_])) return args_[at_++];
    throw needs_value(flag);
  }

  static Error needs_value(const Flag& flag) {
    return Error(ErrorCode::kUsage, fmt::format("--{} needs a value", flag.name), "",
                 fmt::format("write --{} {}", flag.name, flag.value));
  }

  // A cluster, or a file: an empty one would be taken for the default, or for a folder.
  static bool names_something(const Flag& flag) {
    return flag.name == "cluster" || flag.name == "cluster-name" || flag.value == "FILE" || flag.value == "FILE|-" ||
           flag.value == "JOURNAL" || flag.value == "FOLDER";
  }

  void store(const Flag& flag, const std::string* value) {
    Given& given = out_.given[std::string(flag.name)];
    given.origin = fmt::format("--{}", flag.name);
    if (value == nullptr) return;
    if (value->empty() && names_something(flag)) throw needs_value(flag);
    if (flag.kind == FlagKind::kValue) given.values.clear();
    given.values.push_back(*value);
  }

  Error unknown(const std::string& typed, const std::string& name) const {
    std::vector<std::string> names{"help"};
    for (const Flag& flag : command_.flags) names.emplace_back(flag.name);
    // The start of a name that cannot be abbreviated is further from it in edits than from a short one.
    const auto start = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.starts_with(name); });
    const auto near = start != names.end() && name.size() > 1 ? std::optional(*start) : nearest(name, names);
    return Error(ErrorCode::kUsage, fmt::format("unknown flag '{}'", typed), "",
                 near ? fmt::format("did you mean --{}? {}", *near, see_help()) : see_help());
  }

  std::string see_help() const { return fmt::format("see 'rubato {} --help'", command_.name); }

  const Command& command_;
  const std::vector<std::string>& args_;
  const Environment& env_;
  size_t at_ = 0;
  ParsedCommand out_;
};

}  // namespace

const Given* ParsedCommand::find(std::string_view name) const {
  const auto it = given.find(name);
  return it == given.end() ? nullptr : &it->second;
}

std::string ParsedCommand::value(std::string_view name, std::string_view fallback) const {
  const Given* found = find(name);
  return found != nullptr && !found->values.empty() ? found->values.back() : std::string(fallback);
}

ParsedCommand parse_command(const Command& command, const std::vector<std::string>& args, const Environment& env) {
  return CommandLineParser(command, args, env).parse();
}

Error bad_value(const Given& given, std::string_view why, std::string hint) {
  const std::string value = given.values.empty() ? "" : given.values.back();
  return Error(ErrorCode::kUsage,
               fmt::format("{}{}{}: {}", given.origin, given.joint, value.empty() ? "''" : value, why), "",
               std::move(hint));
}

}  // namespace rubato::cli
