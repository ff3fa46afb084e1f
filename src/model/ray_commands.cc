#include "model/ray_commands.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/text.h"

namespace rubato {
namespace {

// A simple command and the operator after it: "ulimit -n 1" and ";".
struct Part {
  std::string text;
  std::string joint;
};

// Splits at ; && || | & and line ends outside quotes, parentheses and backquotes.
std::vector<Part> parts_of(const std::string& command) {
  std::vector<Part> out;
  std::string now;
  char quote = 0;
  int depth = 0;
  const auto close = [&](std::string joint) {
    out.push_back({std::string(trim(now)), std::move(joint)});
    now.clear();
  };
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && i + 1 < command.size() && quote != '\'') {
      now += c;
      now += command[++i];
      continue;
    }
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"' || c == '`') {
      quote = c;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      depth = std::max(0, depth - 1);
    } else if (depth == 0) {
      // 2>&1 and &> are redirections, not the end of a command.
      const bool redirects = c == '&' && ((i > 0 && command[i - 1] == '>') || command.substr(i, 2) == "&>");
      const std::string two = command.substr(i, 2);
      if (two == "&&" || two == "||") {
        close(two);
        ++i;
        continue;
      }
      if (c == ';' || c == '\n' || c == '|' || (c == '&' && !redirects)) {
        close(std::string(1, c));
        continue;
      }
    }
    now += c;
  }
  close("");
  return out;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (const std::string_view word : split(text, ' ')) {
    if (!trim(word).empty()) out.push_back(trim(word));
  }
  return out;
}

bool assignment(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && word[0] != '-' && word.find('/') > equals;
}

enum class Kind { kStart, kStop, kPrepares, kNothing, kOther };

// What runs other commands, and how many of its own words come before them.
size_t wrapper_words(const std::vector<std::string_view>& arguments, size_t at) {
  const std::string_view word = arguments[at];
  if (assignment(word) || word == "sudo" || word == "nohup" || word == "exec" || word == "env" || word == "time")
    return 1;
  const std::string_view next = at + 1 < arguments.size() ? arguments[at + 1] : std::string_view();
  if ((word == "uv" || word == "poetry" || word == "pipenv") && next == "run") return 2;
  if (word == "conda" && next == "run") {
    const bool named = at + 2 < arguments.size() && (arguments[at + 2] == "-n" || arguments[at + 2] == "-p");
    return named ? 4 : 2;
  }
  if (word == "timeout") return 2;
  return 0;
}

Kind kind_of(const Part& part) {
  const auto arguments = words_of(part.text);
  size_t at = 0;
  while (at < arguments.size()) {
    const size_t skip = wrapper_words(arguments, at);
    if (skip == 0) break;
    at += skip;
  }
  if (arguments.empty()) return Kind::kNothing;
  if (at >= arguments.size()) return Kind::kPrepares;  // FOO=bar alone
  const std::string_view program = arguments[at];
  const std::string_view verb = at + 1 < arguments.size() ? arguments[at + 1] : std::string_view();
  if (program == "ray" || program.ends_with("/ray")) {
    if (verb == "start") return Kind::kStart;
    if (verb == "stop") return Kind::kStop;
  }
  if (program == "ulimit" || program == "true" || program == ":") return Kind::kNothing;
  constexpr std::array<std::string_view, 6> kPreparing{"source", ".", "export", "cd", "conda", "module"};
  if (std::find(kPreparing.begin(), kPreparing.end(), program) != kPreparing.end()) return Kind::kPrepares;
  return Kind::kOther;
}

// The parts [from, to) as one command, without those that only served Ray.
std::string rest_of(const std::vector<Part>& parts, size_t from, size_t to) {
  std::string out, joint;
  for (size_t i = from; i < to; ++i) {
    if (kind_of(parts[i]) == Kind::kNothing) continue;
    if (!out.empty()) out += (joint == ";" || joint == "\n" ? "; " : " " + joint + " ");
    out += parts[i].text;
    joint = parts[i].joint;
  }
  return out;
}

bool has_other(const std::vector<Part>& parts, size_t from, size_t to) {
  return std::any_of(parts.begin() + static_cast<long>(from), parts.begin() + static_cast<long>(to),
                     [](const Part& part) { return kind_of(part) == Kind::kOther; });
}

// The first part after `at` that has a life of its own: not what handles its failure or reads its output.
size_t next_of(const std::vector<Part>& parts, size_t at) {
  size_t next = at + 1;
  while (next < parts.size() && (parts[next - 1].joint == "||" || parts[next - 1].joint == "|")) ++next;
  return next;
}

void keep(std::vector<std::string>& list, std::string command) {
  if (!command.empty()) list.push_back(std::move(command));
}

}  // namespace

StartCommands split_start_commands(const std::vector<std::string>& commands) {
  StartCommands out;
  bool started = false;
  for (const std::string& command : commands) {
    const std::vector<Part> parts = parts_of(command);
    const auto is = [](Kind kind) { return [kind](const Part& part) { return kind_of(part) == kind; }; };
    const auto start = std::find_if(parts.begin(), parts.end(), is(Kind::kStart));
    const auto stop = std::find_if(parts.begin(), parts.end(), is(Kind::kStop));
    if (start == parts.end() && stop == parts.end()) {
      (started ? out.after : out.before).push_back(command);
      continue;
    }
    out.replaced.push_back(command);
    if (start == parts.end()) {
      const auto at = static_cast<size_t>(stop - parts.begin());
      std::vector<std::string>& list = started ? out.after : out.before;
      if (has_other(parts, 0, at)) keep(list, rest_of(parts, 0, at));
      const size_t next = next_of(parts, at);
      if (has_other(parts, next, parts.size())) keep(list, rest_of(parts, next, parts.size()));
      continue;
    }
    const auto at = static_cast<size_t>(start - parts.begin());
    // `ray stop; ray start`: what stands before stop prepares start as well.
    std::vector<Part> head(parts.begin(), start);
    std::erase_if(head, is(Kind::kStop));
    keep(out.before, rest_of(head, 0, head.size()));
    const size_t next = next_of(parts, at);
    if (has_other(parts, next, parts.size())) keep(out.after, rest_of(parts, next, parts.size()));
    started = true;
  }
  return out;
}

}  // namespace rubato
