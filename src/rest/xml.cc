#include "rest/xml.h"

#include <expat.h>

#include <algorithm>
#include <memory>

#include "core/text.h"

namespace rubato::rest {
namespace {

struct Builder {
  const XmlLimits& limits;
  XML_Parser parser;
  XmlNode document;             // its only child is the root
  std::vector<XmlNode*> open;   // from the document down; children only grow at the end of the innermost
  size_t elements = 0;
  std::string problem;

  void stop(std::string why) {
    if (problem.empty()) problem = std::move(why);
    XML_StopParser(parser, XML_FALSE);
  }
};

std::string_view without_prefix(std::string_view name) {
  const size_t colon = name.rfind(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

// Expat's callbacks: C, with our Builder as their first argument.
void begin_element(void* data, const char* name, const char**) {
  Builder& builder = *static_cast<Builder*>(data);
  if (++builder.elements > builder.limits.elements_max) return builder.stop("too many elements");
  if (builder.open.size() > builder.limits.depth_max) return builder.stop("nested too deeply");
  XmlNode& parent = *builder.open.back();
  XmlNode& child = parent.children.emplace_back();
  child.name = without_prefix(name);
  builder.open.push_back(&child);
}

void end_element(void* data, const char*) {
  Builder& builder = *static_cast<Builder*>(data);
  XmlNode& ended = *builder.open.back();
  if (!ended.children.empty()) ended.text = trim(ended.text);
  builder.open.pop_back();
}

void add_text(void* data, const char* text, int size) {
  static_cast<Builder*>(data)->open.back()->text.append(text, static_cast<size_t>(size));
}

void refuse_doctype(void* data, const char*, const char*, const char*, int) {
  static_cast<Builder*>(data)->stop("a document type is not accepted");
}

struct ParserFree {
  void operator()(XML_ParserStruct* parser) const { XML_ParserFree(parser); }
};

}  // namespace

const XmlNode* XmlNode::find(std::string_view child) const {
  for (const XmlNode& one : children) {
    if (one.name == child) return &one;
  }
  return nullptr;
}

const XmlNode* XmlNode::at(std::string_view path) const {
  const XmlNode* node = this;
  if (path.empty()) return node;
  for (const std::string_view part : split(path, '/')) {
    node = node->find(part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

std::string_view XmlNode::text_at(std::string_view path) const {
  const XmlNode* const node = at(path);
  return node == nullptr ? std::string_view() : node->text;
}

std::vector<const XmlNode*> XmlNode::list(std::string_view path, std::string_view item) const {
  std::vector<const XmlNode*> out;
  const XmlNode* const node = at(path);
  if (node == nullptr) return out;
  for (const XmlNode& child : node->children) {
    if (child.name == item) out.push_back(&child);
  }
  return out;
}

XmlResult parse_xml(std::string_view text, const XmlLimits& limits) {
  XmlResult result;
  if (text.size() > limits.bytes_max) {
    result.problem = "longer than " + std::to_string(limits.bytes_max) + " bytes";
    return result;
  }
  const std::unique_ptr<XML_ParserStruct, ParserFree> parser(XML_ParserCreate("UTF-8"));
  Builder builder{limits, parser.get(), {}, {}, 0, {}};
  builder.open.push_back(&builder.document);
  XML_SetUserData(parser.get(), &builder);
  XML_SetElementHandler(parser.get(), begin_element, end_element);
  XML_SetCharacterDataHandler(parser.get(), add_text);
  XML_SetStartDoctypeDeclHandler(parser.get(), refuse_doctype);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));  // sent while the answer was not ready
  const XML_Status status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), 1);
  if (status != XML_STATUS_OK || !builder.problem.empty()) {
    if (builder.problem.empty()) builder.problem = XML_ErrorString(XML_GetErrorCode(parser.get()));
    result.problem = "line " + std::to_string(XML_GetCurrentLineNumber(parser.get())) + ": " + builder.problem;
    return result;
  }
  result.root = std::move(builder.document.children.front());
  return result;
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace rubato::rest
