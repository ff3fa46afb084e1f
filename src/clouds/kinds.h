// The kinds of providers, each defined in a folder beside this. Include it in registry.cc and in their own files only.
#pragma once

#include "model/provider_kind.h"

namespace rubato::clouds {

extern const ProviderKind kLocal;
extern const ProviderKind kExternal;
extern const ProviderKind kAws;
extern const ProviderKind kGcp;
extern const ProviderKind kKubernetes;
extern const ProviderKind kAzure;
extern const ProviderKind kAliyun;
extern const ProviderKind kVsphere;

}  // namespace rubato::clouds
