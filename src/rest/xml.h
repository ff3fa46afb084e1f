// XML as clouds answer it: a tree of elements and their text. Attributes, comments and namespaces are left out.
//
// Strict and bounded: a text with a document type (which could name files and blow up entities), deeper or larger than
// the limits is refused, as is anything that is not well-formed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::rest {

struct XmlLimits {
  size_t bytes_max = size_t{64} << 20;
  size_t depth_max = 64;
  size_t elements_max = 1'000'000;
};

struct XmlNode {
  std::string name;  // without its namespace
  std::string text;  // of its own, between its children too; trimmed when it has children
  std::vector<XmlNode> children;

  const XmlNode* find(std::string_view child) const;  // the first; nullptr: none
  // By a path: "instancesSet", "state/name". An absent one reads as an empty text, or as an empty list.
  std::string_view text_at(std::string_view path) const;
  const XmlNode* at(std::string_view path) const;
  // The children of the element at `path` that are called `item`.
  std::vector<const XmlNode*> list(std::string_view path, std::string_view item) const;
};

struct XmlResult {
  XmlNode root;
  std::string problem;  // empty: none. "line 3: mismatched tag"
};
XmlResult parse_xml(std::string_view text, const XmlLimits& limits = {});

// Text for an element: & < > and quotes as entities.
std::string xml_escape(std::string_view text);

}  // namespace rubato::rest
