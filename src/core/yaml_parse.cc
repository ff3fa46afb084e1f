// Text to Yaml tree, on libyaml's events: libyaml has the grammar, we have the strictness and the limits.
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/yaml.h"
#include "core/yaml_node.h"

namespace rubato {

namespace {

struct ParsedEvent {
  yaml_event_t raw{};
  ParsedEvent() = default;
  ParsedEvent(const ParsedEvent&) = delete;
  ParsedEvent& operator=(const ParsedEvent&) = delete;
  ~ParsedEvent() { yaml_event_delete(&raw); }
};

std::string_view text_of(const yaml_char_t* text) {
  return text ? std::string_view(reinterpret_cast<const char*>(text)) : std::string_view();
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

std::string fix_of(std::string_view problem) {
  if (problem.find("cannot start any token") != std::string_view::npos) {
    return "indent with spaces, not tabs, and quote text that begins with @, ` or %";
  }
  if (problem.find("mapping values are not allowed") != std::string_view::npos) {
    return "check the indentation of this line; quote text that holds \": \"";
  }
  if (problem.find("block end") != std::string_view::npos || problem.find("expected key") != std::string_view::npos) {
    return "check the indentation of this line against the lines above it";
  }
  return {};
}

}  // namespace

// One pass over the events of one document. Recursion is bounded by depth_max.
class YamlBuilder {
 public:
  // `duplicates`: where to note keys that appear twice; nullptr: they are errors.
  YamlBuilder(std::string_view text, std::string file, const YamlLimits& limits, std::vector<Error>* duplicates)
      : text_(text),
        file_(std::make_shared<const std::string>(std::move(file))),
        limits_(limits),
        duplicates_(duplicates) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors begin a file with it
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
    if (!yaml_parser_initialize(&parser_)) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text_.data()), text_.size());
  }
  YamlBuilder(const YamlBuilder&) = delete;
  YamlBuilder& operator=(const YamlBuilder&) = delete;
  ~YamlBuilder() { yaml_parser_delete(&parser_); }

  Yaml document();

 private:
  using NodePtr = std::shared_ptr<Yaml::Node>;

  void next(ParsedEvent& event);
  [[noreturn]] void fail_at(const yaml_mark_t& mark, std::string message, std::string hint = {}) const;
  [[noreturn]] void fail_grammar() const;
  [[noreturn]] void fail_reading() const;

  Yaml node(const ParsedEvent& event, size_t depth);
  Yaml alias(const ParsedEvent& event, size_t depth);
  NodePtr start(const ParsedEvent& event);
  void fill_scalar(Yaml::Node& node, const ParsedEvent& event);
  void fill_sequence(Yaml::Node& node, size_t depth);
  void fill_mapping(Yaml::Node& node, size_t depth);
  void check_tag(const ParsedEvent& event, std::string_view tag) const;
  void check_key(const Yaml& key) const;
  void add_entry(Yaml::Node& node, const Yaml& key, const Yaml& value);
  void merge(Yaml::Node& node, const Yaml& source);
  void count(Yaml::Node& node, const Yaml& child);

  yaml_parser_t parser_{};
  std::string_view text_;
  std::shared_ptr<const std::string> file_;
  YamlLimits limits_;
  std::vector<Error>* duplicates_;
  size_t events_ = 0;
  std::map<std::string, std::optional<Yaml>, std::less<>> anchors_;  // nullopt: still being built
};

namespace {

void check_size(std::string_view text, const std::string& file, const YamlLimits& limits) {
  if (text.size() <= limits.bytes_max) return;
  throw Error(ErrorCode::kUsage, fmt::format("the file has {} bytes; the most is {}", text.size(), limits.bytes_max),
              file);
}

}  // namespace

Yaml Yaml::parse(std::string_view text, std::string file, const YamlLimits& limits) {
  check_size(text, file, limits);
  return YamlBuilder(text, std::move(file), limits, nullptr).document();
}

Yaml Yaml::parse_last_wins(std::string_view text, std::string file, std::vector<Error>& duplicates,
                           const YamlLimits& limits) {
  check_size(text, file, limits);
  return YamlBuilder(text, std::move(file), limits, &duplicates).document();
}

Yaml YamlBuilder::document() {
  ParsedEvent stream_start, first;
  next(stream_start);
  next(first);
  auto empty = std::make_shared<Yaml::Node>();
  empty->file = file_;
  if (first.raw.type == YAML_STREAM_END_EVENT) return Yaml(std::move(empty));

  ParsedEvent root, document_end, last;
  next(root);
  Yaml tree = node(root, 1);
  next(document_end);
  next(last);
  if (last.raw.type != YAML_STREAM_END_EVENT) {
    fail_at(last.raw.start_mark, "the file holds more than one document",
            "keep one; put the others in their own files");
  }
  return tree;
}

void YamlBuilder::next(ParsedEvent& event) {
  if (!yaml_parser_parse(&parser_, &event.raw)) fail_grammar();
  // Two events per node at most, and a few for the document.
  if (++events_ > 2 * limits_.nodes_max + 8) {
    fail_at(event.raw.start_mark, fmt::format("the file has more than {} nodes", limits_.nodes_max));
  }
}

void YamlBuilder::fail_at(const yaml_mark_t& mark, std::string message, std::string hint) const {
  throw Error(ErrorCode::kUsage, std::move(message), fmt::format("{}:{}:{}", *file_, mark.line + 1, mark.column + 1),
              std::move(hint));
}

void YamlBuilder::fail_grammar() const {
  if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
  const std::string_view problem = parser_.problem ? parser_.problem : "not YAML";
  const std::string_view context = parser_.context ? parser_.context : "";
  if (parser_.error == YAML_READER_ERROR) fail_reading();
  const bool ended = problem.find("end of stream") != std::string_view::npos ||
                     problem.find("document indicator") != std::string_view::npos;
  if (context == "while scanning a quoted scalar" && ended) {
    fail_at(parser_.context_mark, "this quote is never closed", "add the closing quote");
  }
  std::string message = fmt::format("not valid YAML: {}", problem);
  if (!context.empty()) message += fmt::format(" {} (line {})", context, parser_.context_mark.line + 1);
  fail_at(parser_.problem_mark, std::move(message), fix_of(problem));
}

// A byte that cannot be text: libyaml reads ahead, so that only the byte's offset tells the place.
void YamlBuilder::fail_reading() const {
  const std::string_view before = text_.substr(0, parser_.problem_offset);
  yaml_mark_t mark{};
  mark.line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  mark.column = before.size() - (before.find_last_of('\n') + 1);  // npos + 1 is 0
  fail_at(mark, fmt::format("not readable text: {}", parser_.problem ? parser_.problem : "bad byte"),
          "save the file as UTF-8 without control characters");
}

Yaml YamlBuilder::node(const ParsedEvent& event, size_t depth) {
  if (depth > limits_.depth_max) {
    fail_at(event.raw.start_mark, fmt::format("nested more than {} deep", limits_.depth_max));
  }
  if (event.raw.type == YAML_ALIAS_EVENT) return alias(event, depth);
  NodePtr built = start(event);
  std::string_view anchor, tag;
  switch (event.raw.type) {
    case YAML_SCALAR_EVENT:
      anchor = text_of(event.raw.data.scalar.anchor);
      tag = text_of(event.raw.data.scalar.tag);
      break;
    case YAML_SEQUENCE_START_EVENT:
      anchor = text_of(event.raw.data.sequence_start.anchor);
      tag = text_of(event.raw.data.sequence_start.tag);
      break;
    default:
      CHECK(event.raw.type == YAML_MAPPING_START_EVENT);
      anchor = text_of(event.raw.data.mapping_start.anchor);
      tag = text_of(event.raw.data.mapping_start.tag);
  }
  check_tag(event, tag);
  if (!anchor.empty()) anchors_.insert_or_assign(std::string(anchor), std::nullopt);
  if (event.raw.type == YAML_SCALAR_EVENT) fill_scalar(*built, event);
  if (event.raw.type == YAML_SEQUENCE_START_EVENT) fill_sequence(*built, depth);
  if (event.raw.type == YAML_MAPPING_START_EVENT) fill_mapping(*built, depth);
  Yaml done(std::move(built));
  if (!anchor.empty()) anchors_.insert_or_assign(std::string(anchor), done);
  return done;
}

Yaml YamlBuilder::alias(const ParsedEvent& event, size_t depth) {
  const std::string_view name = text_of(event.raw.data.alias.anchor);
  const auto found = anchors_.find(name);
  if (found == anchors_.end()) {
    std::vector<std::string> names;
    for (const auto& anchor : anchors_) names.push_back(anchor.first);
    const std::optional<std::string> near = nearest(name, names);
    fail_at(event.raw.start_mark, fmt::format("the alias {} has no anchor before it", shown_in_error(name)),
            near ? fmt::format("did you mean \"{}\"?", *near) : std::string());
  }
  if (!found->second)
    fail_at(event.raw.start_mark, fmt::format("the alias {} stands inside its own anchor", shown_in_error(name)));
  if (depth - 1 + found->second->node_->height > limits_.depth_max) {
    fail_at(event.raw.start_mark, fmt::format("nested more than {} deep, aliases expanded", limits_.depth_max));
  }
  return *found->second;
}

YamlBuilder::NodePtr YamlBuilder::start(const ParsedEvent& event) {
  auto node = std::make_shared<Yaml::Node>();
  node->file = file_;
  node->line = event.raw.start_mark.line + 1;
  node->column = event.raw.start_mark.column + 1;
  return node;
}

void YamlBuilder::check_tag(const ParsedEvent& event, std::string_view tag) const {
  if (tag.empty() || tag == "!") return;
  const std::optional<std::string_view> standard = strip_prefix(tag, "tag:yaml.org,2002:");
  for (const std::string_view known : {"str", "int", "float", "bool", "null", "seq", "map"}) {
    if (standard == known) return;
  }
  fail_at(event.raw.start_mark, fmt::format("the tag {} is not supported", shown_in_error(tag)), "remove the tag");
}

void YamlBuilder::fill_scalar(Yaml::Node& node, const ParsedEvent& event) {
  const auto& scalar = event.raw.data.scalar;
  node.text.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
  const std::string_view tag = text_of(scalar.tag);
  node.quoted = scalar.style != YAML_PLAIN_SCALAR_STYLE || tag == "!" || tag == YAML_STR_TAG;
  node.kind = !node.quoted && is_null_word(node.text) ? YamlKind::kNull : YamlKind::kScalar;
}

void YamlBuilder::fill_sequence(Yaml::Node& node, size_t depth) {
  node.kind = YamlKind::kSequence;
  while (true) {
    ParsedEvent event;
    next(event);
    if (event.raw.type == YAML_SEQUENCE_END_EVENT) return;
    node.items.push_back(this->node(event, depth + 1));
    count(node, node.items.back());
  }
}

void YamlBuilder::fill_mapping(Yaml::Node& node, size_t depth) {
  node.kind = YamlKind::kMapping;
  std::optional<Yaml> merged;
  while (true) {
    ParsedEvent key_event, value_event;
    next(key_event);
    if (key_event.raw.type == YAML_MAPPING_END_EVENT) break;
    const Yaml key = this->node(key_event, depth + 1);
    check_key(key);
    next(value_event);
    const Yaml value = this->node(value_event, depth + 1);
    count(node, key);
    count(node, value);
    if (key.node_->text != "<<" || key.quoted()) {
      add_entry(node, key, value);
    } else if (merged) {
      key.fail("the key \"<<\" appears twice", "merge several with one list: <<: [*a, *b]");
    } else {
      merged = value;
    }
  }
  // Last, because the mapping's own keys win wherever they stand.
  if (merged) merge(node, *merged);
}

void YamlBuilder::check_key(const Yaml& key) const {
  if (!key.is_scalar()) key.fail(fmt::format("a key must be text, not {}", to_string(key.kind())), "quote it");
}

void YamlBuilder::add_entry(Yaml::Node& node, const Yaml& key, const Yaml& value) {
  const auto [place, fresh] = node.index.try_emplace(key.node_->text, node.entries.size());
  if (!fresh) {
    Yaml::Entry& first = node.entries[place->second];
    const Error error(
        ErrorCode::kUsage,
        fmt::format("the key {} appears twice, first in line {}", shown_in_error(key.node_->text), first.key.line()),
        key.where(), "remove one of the two");
    if (duplicates_ == nullptr) throw error;
    duplicates_->push_back(error);
    first.value = value;  // the first key stays: the index points into it
    return;
  }
  node.entries.push_back(Yaml::Entry{key, value});
}

void YamlBuilder::merge(Yaml::Node& node, const Yaml& source) {
  if (source.is_sequence()) {
    for (const Yaml& one : source.items()) {
      if (!one.is_mapping()) one.fail("\"<<\" takes mappings only");
      merge(node, one);
    }
    return;
  }
  if (!source.is_mapping()) source.fail("\"<<\" takes a mapping or a list of mappings");
  for (const Yaml::Entry& entry : source.entries()) {
    if (node.index.try_emplace(entry.key.node_->text, node.entries.size()).second) node.entries.push_back(entry);
  }
}

void YamlBuilder::count(Yaml::Node& node, const Yaml& child) {
  node.weight += child.node_->weight;
  node.height = std::max(node.height, child.node_->height + 1);
  if (node.weight > limits_.nodes_max) {
    throw Error(ErrorCode::kUsage, fmt::format("more than {} nodes, aliases expanded", limits_.nodes_max),
                fmt::format("{}:{}:{}", *file_, node.line, node.column));
  }
}

}  // namespace rubato
