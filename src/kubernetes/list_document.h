// ListDocument: a page of a list, cut into its items. Pure.
//
// A page holds a megabyte of text and more; as values all at once it would be ten. So items are read one by one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::kubernetes {

struct ListDocument {
  std::string resource_version;
  std::string next;                     // the token of the next page; empty: this is the last one
  std::vector<std::string_view> items;  // each one object, within the page's text
};

// `page` outlives what is returned. Throws kUnavailable, naming `what` was asked, for what is no list, or too large.
ListDocument cut_list(const std::string& page, const std::string& what);

// One of the items as values. Throws kUnavailable for what is no object.
nlohmann::json read_item(std::string_view item, const std::string& what);

}  // namespace rubato::kubernetes
