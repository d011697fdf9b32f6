#include "daemon/core/model/reducer.h"

namespace rueda::core {

const char* to_string(Reducer reducer) { return reducer == Reducer::kNode ? "node" : "device"; }

Result<Reducer> parse_reducer(const std::string& name) {
  for (const Reducer reducer : {Reducer::kNode, Reducer::kDevice}) {
    if (name == to_string(reducer)) return reducer;
  }
  return Status(Code::kInvalidArgument,
                "there is no reducer \"" + name + "\"; the reducers are node, device");
}

}  // namespace rueda::core
