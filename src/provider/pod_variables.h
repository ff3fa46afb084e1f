// What the containers of a cluster's pods are told of its head, in their environment.
#pragma once

namespace rubato::provider {

// In the container of a head: the pod's address, which is another one when the pod is made again.
inline constexpr const char* kHeadAddressVariable = "RUBATO_HEAD_ADDRESS";
// In the containers of workers: the name that leads to the head's pod, whichever that is.
inline constexpr const char* kHeadNameVariable = "RUBATO_HEAD_NAME";

}  // namespace rubato::provider
