// IniFile: the files of ~/.aws. Sections of `key = value`; a key without a value may have indented keys below it:
//
//   [services local]
//   ec2 =
//     endpoint_url = http://127.0.0.1:5000
//
// which are read as "ec2.endpoint_url". # and ; begin comments in lines of their own. A section or a key that comes
// again adds to the first, or replaces it. Throws a usage Error with file:line for what is none of this.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rubato::rest {

struct IniValue {
  std::string text;
  int line = 0;
};

class IniFile {
 public:
  IniFile() = default;
  IniFile(std::string_view text, std::string path);

  using Section = std::map<std::string, IniValue, std::less<>>;
  const Section* find(std::string_view section) const;  // nullptr: none
  std::optional<std::string> value(std::string_view section, std::string_view key) const;
  const std::map<std::string, Section, std::less<>>& sections() const { return sections_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::map<std::string, Section, std::less<>> sections_;
};

}  // namespace rubato::rest
