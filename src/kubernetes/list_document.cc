#include "kubernetes/list_document.h"

#include "core/text.h"
#include "kubernetes/client.h"

namespace rubato::kubernetes {

using nlohmann::json;

namespace {

constexpr size_t kListDepth = 2;  // {"items": [

// Where the string that begins at `quote` ends: behind its last quote, or the end of the text.
size_t behind_string(std::string_view text, size_t quote) {
  size_t at = quote + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// Finds the items, and the text around them. What is no JSON is for the parser to refuse.
struct Cutter {
  explicit Cutter(std::string_view page) : text(page) {
    size_t at = 0;
    while (at < text.size()) {
      at = text[at] == '"' ? take_string(at) : take_sign(at);
    }
  }

  size_t take_string(size_t at) {
    const size_t end = behind_string(text, at);
    if (depth == 1) key = text.substr(at, end - at);
    return end;
  }

  size_t take_sign(size_t at) {
    const char c = text[at];
    if (c == '[' || c == '{') {
      if (c == '[' && depth == 1 && key == "\"items\"" && list_begin == 0) list_begin = at + 1;
      if (in_list() && depth == kListDepth) item_begin = at;
      ++depth;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
      if (in_list() && depth == kListDepth) items.push_back(text.substr(item_begin, at + 1 - item_begin));
      if (in_list() && depth == 1) list_end = at;
    }
    return at + 1;
  }

  bool in_list() const { return list_begin != 0 && list_end == 0; }

  std::string_view text, key;
  size_t depth = 0, item_begin = 0, list_begin = 0, list_end = 0;
  std::vector<std::string_view> items;
};

}  // namespace

ListDocument cut_list(const std::string& page, const std::string& what) {
  Cutter cut(page);
  const std::string around =
      cut.list_end == 0 ? page : page.substr(0, cut.list_begin) + page.substr(cut.list_end);
  const json document = read_document(around, what);
  const json& metadata = object_in(document, "metadata");
  ListDocument out;
  out.resource_version = text_in(metadata, "resourceVersion");
  out.next = text_in(metadata, "continue");
  out.items = std::move(cut.items);
  return out;
}

json read_item(std::string_view item, const std::string& what) { return read_document(std::string(item), what); }

}  // namespace rubato::kubernetes
