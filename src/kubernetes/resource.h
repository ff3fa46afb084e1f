// Resource: a kind of object of the API, and the paths of its objects. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rest/url.h"

namespace rubato::kubernetes {

struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  bool operator==(const Resource&) const = default;
};

inline std::string api_version(const Resource& resource) {
  return resource.group.empty() ? resource.version : resource.group + "/" + resource.version;
}

// Where one object is. An empty name is the whole collection; an empty namespace all of them, or none for what has
// none.
struct ObjectName {
  std::string namespace_name;
  std::string name;
  bool operator==(const ObjectName&) const = default;
  auto operator<=>(const ObjectName&) const = default;
};
std::string to_string(const ObjectName& name);  // "ns/name"

// A resourceVersion as a number, to tell older news of one kind of objects from newer; 0: it is none.
uint64_t version_number(std::string_view text);

// "/apis/apps/v1/namespaces/NS/deployments/NAME/SUBRESOURCE"
std::string path_of(const Resource& resource, const ObjectName& object, std::string_view subresource = {});

inline const Resource& pods() {
  static const Resource resource{"", "v1", "pods", "Pod"};
  return resource;
}
inline const Resource& services() {
  static const Resource resource{"", "v1", "services", "Service"};
  return resource;
}
inline const Resource& secrets() {
  static const Resource resource{"", "v1", "secrets", "Secret"};
  return resource;
}
inline const Resource& events() {
  static const Resource resource{"", "v1", "events", "Event"};
  return resource;
}
inline const Resource& nodes() {
  static const Resource resource{"", "v1", "nodes", "Node", false};
  return resource;
}
inline const Resource& leases() {
  static const Resource resource{"coordination.k8s.io", "v1", "leases", "Lease"};
  return resource;
}
inline const Resource& crds() {
  static const Resource resource{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
                                 false};
  return resource;
}

}  // namespace rubato::kubernetes
