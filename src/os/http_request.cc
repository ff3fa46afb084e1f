#include "os/http_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "core/text.h"

namespace rubato::os {

namespace {

constexpr size_t kFieldsMax = 100;
constexpr size_t kChunkDigitsMax = 8;
constexpr size_t kChunkLineMax = kChunkDigitsMax + 2;  // no extensions: nobody uses them, but to smuggle

// "tchar" of RFC 9110.
bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// No overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || i + more >= text.size()) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000)) return false;
    if ((code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return false;
    i += more + 1;
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// nullopt: a broken escape, a control character, or not UTF-8.
std::optional<std::string> decode_percent(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (is_control(c)) return std::nullopt;
    out.push_back(c);
  }
  if (!is_utf8(out)) return std::nullopt;
  return out;
}

bool lists(const std::string& field, std::string_view word) {
  return std::ranges::any_of(split(field, ','), [&](std::string_view one) { return to_lower(trim(one)) == word; });
}

// Fields of which a second one would leave open which one counts.
bool is_single(const std::string& name) {
  static const std::set<std::string, std::less<>> kSingle{"host",          "content-length", "transfer-encoding",
                                                          "authorization", "content-type",   "expect"};
  return kSingle.contains(name);
}

}  // namespace

size_t HttpRequestParser::refuse(int status, std::string message) {
  refusal_ = HttpRefusal{status, std::move(message)};
  // Nothing of it is used any more.
  head_ = line_ = {};
  request_ = {};
  return 0;
}

size_t HttpRequestParser::feed(std::string_view bytes) {
  size_t taken = 0;
  while (!refusal_ && !done() && taken < bytes.size()) {
    const std::string_view rest = bytes.substr(taken);
    switch (step_) {
      case Step::kHead:
        taken += feed_head(rest);
        break;
      case Step::kSizedBody:
        taken += feed_sized(rest);
        break;
      case Step::kChunkSize:
      case Step::kChunkEnd:
      case Step::kLastEnd:
        taken += feed_chunk_line(rest);
        break;
      case Step::kChunkBody:
        taken += feed_chunk_body(rest);
        break;
      case Step::kDone:
        break;
    }
  }
  return taken;
}

// Adds a byte of a line that ends with CR LF. False: refused.
bool HttpRequestParser::add_line_byte(std::string& line, char byte, size_t most) {
  const bool after_cr = line.ends_with('\r');
  if (after_cr != (byte == '\n')) return refuse(400, "lines end with CR LF");
  if (is_control(byte) && byte != '\r' && byte != '\n' && byte != '\t') {
    return refuse(400, "a control character outside the body: is this HTTP?");
  }
  if (line.size() >= most) {
    if (head_done()) return refuse(400, "the line of a chunk's size holds more than a size");
    return refuse(431, "the header is longer than " + std::to_string(limits_.header_bytes_max) + " bytes");
  }
  line.push_back(byte);
  return true;
}

size_t HttpRequestParser::feed_head(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!add_line_byte(head_, bytes[i], limits_.header_bytes_max)) return i;
    if (bytes[i] != '\n') continue;
    // RFC 9112, section 2.2: an empty line before the request line is left over from the request before.
    if (head_ == "\r\n") {
      head_.clear();
    } else if (head_.ends_with("\r\n\r\n")) {
      end_head();
      return i + 1;
    }
  }
  return bytes.size();
}

void HttpRequestParser::end_head() {
  std::string head = std::move(head_);
  head_.clear();
  head.resize(head.size() - 4);
  std::string_view rest = head;
  bool first = true;
  size_t fields = 0;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find("\r\n"), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 2, rest.size()));
    if (!first && ++fields > kFieldsMax) {
      refuse(431, "more than " + std::to_string(kFieldsMax) + " header lines");
      return;
    }
    if (std::exchange(first, false) ? !read_request_line(line) : !read_field(line)) return;
  }
  if (!plan_connection() || !ask_about_head()) return;
  plan_body();
}

bool HttpRequestParser::ask_about_head() {
  if (!on_head_) return true;
  HeadAnswer answer = on_head_(request_);
  body_bytes_max_ = std::min(body_bytes_max_, answer.body_bytes_max);
  return !answer.refusal || refuse(answer.refusal->status, std::move(answer.refusal->message));
}

bool HttpRequestParser::read_request_line(std::string_view line) {
  const size_t one = line.find(' ');
  const size_t two = one == std::string_view::npos ? one : line.find(' ', one + 1);
  if (two == std::string_view::npos || line.find_first_of(" \t", two + 1) != std::string_view::npos) {
    return refuse(400, "a request begins with METHOD PATH HTTP/1.1");
  }
  const std::string_view method = line.substr(0, one);
  if (!is_token(method)) return refuse(400, "the method is not a word");
  if (!read_version(line.substr(two + 1))) return false;
  if (method != "GET" && method != "PUT" && method != "POST" && method != "DELETE") {
    return refuse(405, "the methods are GET, PUT, POST and DELETE");
  }
  request_.method = method;
  return read_target(line.substr(one + 1, two - one - 1));
}

bool HttpRequestParser::read_version(std::string_view version) {
  if (version == "HTTP/1.1") return true;
  if (version == "HTTP/1.0") return http_1_0_ = true;
  const bool other = version.size() == 8 && version.starts_with("HTTP/") && version[6] == '.';
  if (other) return refuse(505, "this server speaks HTTP/1.1");
  return refuse(400, "a request begins with METHOD PATH HTTP/1.1");
}

bool HttpRequestParser::read_target(std::string_view target) {
  const bool plain = std::ranges::all_of(target, [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  if (!target.starts_with('/') || !plain) return refuse(400, "the path begins with / and is percent-encoded ASCII");
  const size_t question = target.find('?');
  const std::optional<std::string> path = decode_percent(target.substr(0, question), false);
  if (!path) return refuse(400, "the path has a broken escape, a control character, or is not UTF-8");
  if (path->find("..") != std::string::npos || path->find("//") != std::string::npos) {
    return refuse(400, "the path holds '..' or '//'");
  }
  request_.path = *path;
  return question == std::string_view::npos || read_query(target.substr(question + 1));
}

bool HttpRequestParser::read_query(std::string_view query) {
  for (const std::string_view pair : split(query, '&')) {
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::optional<std::string> name = decode_percent(pair.substr(0, equals), true);
    const std::optional<std::string> value = decode_percent(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return refuse(400, "the query has a broken escape, a control character, or is not UTF-8");
    if (!request_.query.emplace(*name, *value).second) return refuse(400, "a query parameter is given twice");
  }
  return true;
}

bool HttpRequestParser::read_field(std::string_view line) {
  if (line.starts_with(' ') || line.starts_with('\t')) return refuse(400, "a folded header line");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    return refuse(400, "a header line is not NAME: VALUE");
  }
  const std::string name = to_lower(line.substr(0, colon));
  const std::string value(trim(line.substr(colon + 1)));
  const auto [at, added] = request_.headers.emplace(name, value);
  if (added) return true;
  if (is_single(name)) return refuse(400, "the header " + name + " is given twice");
  at->second += (name == "cookie" ? "; " : ", ") + value;
  return true;
}

bool HttpRequestParser::plan_connection() {
  const auto& headers = request_.headers;
  if (!http_1_0_ && !headers.contains("host")) return refuse(400, "the header Host is missing");
  const auto connection = headers.find("connection");
  if (connection != headers.end()) {
    const std::vector<std::string_view> names = split(connection->second, ',');
    const auto fine = [](std::string_view word) { return trim(word).empty() || is_token(trim(word)); };
    if (!std::ranges::all_of(names, fine)) return refuse(400, "the header Connection is not a list of words");
  }
  keep_alive_ = !http_1_0_ && (connection == headers.end() || !lists(connection->second, "close"));
  const auto expect = headers.find("expect");
  if (expect == headers.end() || http_1_0_) return true;
  if (to_lower(expect->second) != "100-continue") return refuse(417, "the only Expect is 100-continue");
  return expects_continue_ = true;
}

bool HttpRequestParser::plan_body() {
  const auto& headers = request_.headers;
  const auto coding = headers.find("transfer-encoding");
  const auto length = headers.find("content-length");
  if (coding != headers.end()) {
    if (length != headers.end()) return refuse(400, "both Content-Length and Transfer-Encoding");
    if (http_1_0_) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
    if (to_lower(coding->second) != "chunked") return refuse(501, "the only Transfer-Encoding is chunked");
    step_ = Step::kChunkSize;
    return true;
  }
  if (length != headers.end()) return plan_length(length->second);
  step_ = Step::kDone;
  return true;
}

bool HttpRequestParser::plan_length(const std::string& length) {
  const char* end = length.data() + length.size();
  uint64_t size = 0;
  const bool digits = !length.empty() && std::ranges::all_of(length, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return refuse(400, "Content-Length is not a number");
  const auto [stop, error] = std::from_chars(length.data(), end, size);
  if (error != std::errc{} || stop != end || size > body_bytes_max_) {
    return refuse(413, "the body is longer than " + std::to_string(body_bytes_max_) + " bytes");
  }
  left_ = size;
  step_ = size == 0 ? Step::kDone : Step::kSizedBody;
  return true;
}

size_t HttpRequestParser::feed_sized(std::string_view bytes) {
  const size_t taken = std::min(left_, bytes.size());
  request_.body.append(bytes.substr(0, taken));
  left_ -= taken;
  if (left_ == 0) step_ = Step::kDone;
  return taken;
}

size_t HttpRequestParser::feed_chunk_body(std::string_view bytes) {
  const size_t taken = std::min(left_, bytes.size());
  request_.body.append(bytes.substr(0, taken));
  left_ -= taken;
  if (left_ == 0) step_ = Step::kChunkEnd;
  return taken;
}

// A line between chunks: a size, or the empty one after a chunk.
size_t HttpRequestParser::feed_chunk_line(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!add_line_byte(line_, bytes[i], kChunkLineMax)) return i;
    if (bytes[i] != '\n') continue;
    line_.resize(line_.size() - 2);
    end_chunk_line();
    line_.clear();
    return i + 1;
  }
  return bytes.size();
}

void HttpRequestParser::end_chunk_line() {
  if (step_ == Step::kChunkSize) return begin_chunk(line_);
  if (line_.empty()) {
    step_ = step_ == Step::kChunkEnd ? Step::kChunkSize : Step::kDone;
  } else {
    refuse(400, step_ == Step::kChunkEnd ? "a chunk is longer than its size" : "a trailer after the last chunk");
  }
}

void HttpRequestParser::begin_chunk(std::string_view digits) {
  const bool hex = !digits.empty() && digits.size() <= kChunkDigitsMax &&
                   std::ranges::all_of(digits, [](char c) { return hex_digit(c) >= 0; });
  if (!hex) {
    refuse(400, "a chunk's size is not a hexadecimal number");
    return;
  }
  size_t size = 0;
  for (const char c : digits) size = size * 16 + static_cast<size_t>(hex_digit(c));
  if (size > body_bytes_max_ || request_.body.size() + size > body_bytes_max_) {
    refuse(413, "the body is longer than " + std::to_string(body_bytes_max_) + " bytes");
    return;
  }
  left_ = size;
  step_ = size == 0 ? Step::kLastEnd : Step::kChunkBody;
}

}  // namespace rubato::os
