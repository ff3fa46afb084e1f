#include "core/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

namespace rubato {
namespace {

// Above this many fields, a set looks for those that are there twice.
constexpr size_t kFewFields = 24;

std::string place_of(std::string_view text, const std::string& file, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  const std::string_view row = before.substr(begin);
  const auto column = row.size() - static_cast<size_t>(std::count_if(row.begin(), row.end(), continues)) + 1;
  return fmt::format("{}:{}:{}", file, line, column);
}

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& file, const JsonTextLimits& limits)
      : text_(text), file_(file), limits_(limits) {}

  JsonNode parse() {
    if (text_.size() > limits_.bytes_max)
      throw fail(0, fmt::format("it is larger than {} MiB", limits_.bytes_max >> 20));
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    skip_blanks();
    if (at_ == text_.size()) throw Error(ErrorCode::kUsage, "the document is empty", file_);
    JsonNode root;
    read_value(root);
    skip_blanks();
    if (at_ != text_.size()) throw fail(at_, "something stands after the document's end");
    return root;
  }

 private:
  Error fail(size_t offset, std::string_view why) const {
    return Error(ErrorCode::kUsage, fmt::format("this is not JSON: {}", why), place_of(text_, file_, offset));
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void read_value(JsonNode& out) {
    if (++values_ > limits_.values_max) throw fail(at_, fmt::format("more than {} values", limits_.values_max));
    out.offset = at_;
    if (at_ == text_.size()) throw fail(at_, "it ends where a value is expected");
    switch (text_[at_]) {
      case '{':
        return read_object(out);
      case '[':
        return read_array(out);
      case '"':
        out.kind = JsonKind::kString;
        out.text = read_string();
        return;
      default:
        return read_word(out);
    }
  }

  void read_word(JsonNode& out) {
    if (take("null")) return;
    if (take("true") || take("false")) {
      out.kind = JsonKind::kBoolean;
      out.boolean = text_[out.offset] == 't';
      return;
    }
    out.kind = JsonKind::kNumber;
    if (take("NaN")) {
      out.number = std::numeric_limits<double>::quiet_NaN();
    } else if (take("Infinity")) {
      out.number = std::numeric_limits<double>::infinity();
    } else if (take("-Infinity")) {
      out.number = -std::numeric_limits<double>::infinity();
    } else {
      out.number = read_number();
    }
  }

  bool digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

  void digits(size_t begin) {
    if (!digit()) throw fail(begin, "a value is expected here");
    while (digit()) ++at_;
  }

  double read_number() {
    const size_t begin = at_;
    take("-");
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    digits(begin);
    if (zero && at_ - begin > (text_[begin] == '-' ? 2U : 1U)) throw fail(begin, "a number may not begin with 0");
    if (take(".")) digits(begin);
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!take("+")) take("-");
      digits(begin);
    }
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + at_, value);
    if (error == std::errc::result_out_of_range) {  // 1e999, or 1e-999
      const std::string_view all = text_.substr(begin, at_ - begin);
      const bool tiny = all.find("e-") != all.npos || all.find("E-") != all.npos;
      value = tiny ? 0 : std::numeric_limits<double>::infinity();
      return all.front() == '-' ? -value : value;
    }
    return value;
  }

  void enter(char open) {
    ++at_;
    if (++depth_ > limits_.depth_max)
      throw fail(at_ - 1, fmt::format("'{}' is nested deeper than {}", open, limits_.depth_max));
    skip_blanks();
  }

  // After an element: whether one more follows.
  bool more(char close) {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == close) {
      ++at_;
      --depth_;
      return false;
    }
    if (at_ == text_.size() || text_[at_] != ',') throw fail(at_, fmt::format("',' or '{}' is expected here", close));
    ++at_;
    skip_blanks();
    return true;
  }

  void read_array(JsonNode& out) {
    out.kind = JsonKind::kArray;
    enter('[');
    if (at_ < text_.size() && text_[at_] == ']') {
      more(']');
      return;
    }
    do read_value(out.items.emplace_back());
    while (more(']'));
  }

  void read_object(JsonNode& out) {
    out.kind = JsonKind::kObject;
    enter('{');
    if (at_ < text_.size() && text_[at_] == '}') {
      more('}');
      return;
    }
    std::set<std::string> seen;
    do {
      const size_t begin = at_;
      if (at_ == text_.size() || text_[at_] != '"') throw fail(at_, "a field's name in quotes is expected here");
      std::string key = read_string();
      if (out.keys.size() == kFewFields) seen.insert(out.keys.begin(), out.keys.end());
      const bool twice = out.keys.size() < kFewFields
                             ? std::find(out.keys.begin(), out.keys.end(), key) != out.keys.end()
                             : !seen.insert(key).second;
      if (twice)
        throw Error(ErrorCode::kUsage, fmt::format("'{}' is there twice", key), place_of(text_, file_, begin),
                    "leave one of them out");
      out.keys.push_back(std::move(key));
      skip_blanks();
      if (!take(":")) throw fail(at_, "':' is expected here");
      skip_blanks();
      read_value(out.items.emplace_back());
    } while (more('}'));
  }

  uint32_t four_digits(size_t begin) {
    uint32_t value = 0;
    const char* const first = text_.data() + at_;
    const char* const last = text_.data() + std::min(at_ + 4, text_.size());
    const auto [end, error] = std::from_chars(first, last, value, 16);
    if (error != std::errc() || end != first + 4) throw fail(begin, "\\u needs four hexadecimal digits");
    at_ += 4;
    return value;
  }

  static void append_utf8(std::string& out, uint32_t c) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }

  void read_escape(std::string& out) {
    const size_t begin = at_ - 1;
    if (at_ == text_.size()) throw fail(begin, "a text does not end");
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t found = kFrom.find(c); found != kFrom.npos) {
      out += kTo[found];
      return;
    }
    if (c != 'u') throw fail(begin, "an unknown escape");
    uint32_t value = four_digits(begin);
    if (value >= 0xD800 && value < 0xDC00) {
      if (!take("\\u")) throw fail(begin, "half of a surrogate pair");
      const uint32_t low = four_digits(begin);
      if (low < 0xDC00 || low > 0xDFFF) throw fail(begin, "half of a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    } else if (value >= 0xDC00 && value <= 0xDFFF) {
      throw fail(begin, "half of a surrogate pair");
    }
    append_utf8(out, value);
  }

  std::string read_string() {
    const size_t begin = at_++;
    std::string out;
    while (true) {
      if (at_ == text_.size()) throw fail(begin, "a text does not end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) throw fail(at_ - 1, "a control character inside a text");
      if (c == '\\') {
        read_escape(out);
      } else {
        out += c;
      }
    }
  }

  std::string_view text_;
  const std::string& file_;
  const JsonTextLimits& limits_;
  size_t at_ = 0;
  size_t depth_ = 0;
  size_t values_ = 0;
};

}  // namespace

std::string_view to_string(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBoolean:
      return "true or false";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kString:
      return "a text";
    case JsonKind::kArray:
      return "a list";
    case JsonKind::kObject:
      return "an object";
  }
  return "";
}

const JsonNode* JsonNode::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

JsonText::JsonText(std::string_view text, std::string file, const JsonTextLimits& limits)
    : text_(text), file_(std::move(file)), root_(JsonParser(text, file_, limits).parse()) {}

std::string JsonText::where(size_t offset) const { return place_of(text_, file_, offset); }

}  // namespace rubato
