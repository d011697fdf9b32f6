// Whatever text another node, a launcher or an operator sends, in whichever field of whichever
// message: what the daemon keeps of it, and what it says against it, is one printable line, so that
// nobody forges lines of a log, drives a terminal, or fills a disk. The fields are those of the
// protos: a new one needs an example here.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_communicator.h"
#include "daemon/service/convert/convert_generation.h"
#include "daemon/service/convert/convert_nonfinite.h"
#include "daemon/service/convert/convert_plan.h"
#include "daemon/service/convert/convert_timeline.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMostKept = 4096;

// What becomes of a message: either it is refused with a sentence, or these texts are kept of it.
struct Outcome {
  bool is_refused = false;
  std::string refusal;
  std::vector<std::string> kept;
};

// Calls the function for each text in the message that is set, with its field and with what sets
// it. Each text is put back afterwards.
using Visit =
    std::function<void(const FieldDescriptor&, const std::function<void(const std::string&)>&)>;

void for_each_text(Message& message, const Visit& visit) {
  const Reflection& fields = *message.GetReflection();
  std::vector<const FieldDescriptor*> present;
  fields.ListFields(message, &present);
  for (const FieldDescriptor* const field : present) {
    const bool is_list = field->is_repeated();
    const int count = is_list ? fields.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        for_each_text(is_list ? *fields.MutableRepeatedMessage(&message, field, i)
                              : *fields.MutableMessage(&message, field),
                      visit);
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        const auto set = [&](const std::string& text) {
          is_list ? fields.SetRepeatedString(&message, field, i, text)
                  : fields.SetString(&message, field, text);
        };
        const std::string before = is_list ? fields.GetRepeatedString(message, field, i)
                                           : fields.GetString(message, field);
        visit(*field, set);
        set(before);
      }
    }
  }
}

std::vector<std::string> texts_of(const Message& message) {
  std::vector<std::string> texts;
  const Reflection& fields = *message.GetReflection();
  std::vector<const FieldDescriptor*> present;
  fields.ListFields(message, &present);
  for (const FieldDescriptor* const field : present) {
    const bool is_list = field->is_repeated();
    const int count = is_list ? fields.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const Message& inner = is_list ? fields.GetRepeatedMessage(message, field, i)
                                       : fields.GetMessage(message, field);
        for (std::string& text : texts_of(inner)) texts.push_back(std::move(text));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        texts.push_back(is_list ? fields.GetRepeatedString(message, field, i)
                                : fields.GetString(message, field));
      }
    }
  }
  return texts;
}

// Adds the names of all text fields of a message, and of those in it.
void add_text_fields(const Descriptor& message, std::set<std::string>& names,
                     std::set<const Descriptor*>& seen) {
  if (!seen.insert(&message).second) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.type() == FieldDescriptor::TYPE_STRING) names.insert(field.full_name());
    if (field.message_type() != nullptr) add_text_fields(*field.message_type(), names, seen);
  }
}

// --- Examples: messages that are taken as they are

core::DescriptorPtr tensor(const std::string& name) {
  core::TensorDescriptor made;
  made.name = name;
  made.kind = CollectiveKind::kAllreduce;
  made.dtype = DType::kFloat32;
  made.op = ReduceOp::kSum;
  made.shape = {4};
  made.group = "group";
  made.group_size = 1;
  return std::make_shared<core::TensorDescriptor>(made);
}

core::Plan plan() {
  core::Plan made;
  made.batches.push_back({{tensor("planned")}, core::kPlanStart, true});
  return made;
}

v1::LinkMessage of_job(decltype(core::Message::body) body) {
  v1::LinkMessage message;
  *message.mutable_job() =
      to_proto(engine::Envelope{"job", {NodeIndex{1}, Epoch{1}, 1, std::move(body)}, {}});
  return message;
}

template <class Body>
v1::LinkMessage agreed(Body body) {
  return of_job(core::AgreementMessage(std::move(body)));
}

core::OrderedOperation operation() {
  core::OrderedOperation made;
  made.seq = Seq{1};
  made.tensors = {"t"};
  return made;
}

std::vector<v1::LinkMessage> messages_of_decrees() {
  core::OrderedOperation failed = operation();
  failed.error = Status(Code::kMismatch, "they differ");
  core::OrderedOperation described = operation();
  described.descriptors = {tensor("t")};
  return {agreed(core::Decree{{operation()}}), agreed(core::Decree{{failed}}),
          agreed(core::Decree{{described}})};
}

std::vector<v1::LinkMessage> messages_of_stalls() {
  const core::RankActivity activity{Rank{0}, false, "last", 0, 1, "before", 0, 2};
  core::Stall stall;
  stall.tensor = "t";
  stall.submitted = {Rank{0}};
  stall.missing = {Rank{1}};
  stall.near_misses = {{Rank{1}, "near", 0}};
  return {of_job(core::StallMessage(core::StallReport{{{"t", 1}}})),
          of_job(core::StallMessage(core::StallQuery{1, true, {"t"}})),
          of_job(core::StallMessage(
              core::StallAnswer{1, {{{Rank{0}}, {{Rank{1}, "near", 0}}}}, {activity}})),
          of_job(core::StallMessage(core::StallNotice{{stall}, {activity}}))};
}

std::vector<v1::LinkMessage> messages_of_links() {
  std::vector<v1::LinkMessage> made = messages_of_decrees();
  for (v1::LinkMessage& message : messages_of_stalls()) made.push_back(std::move(message));
  made.push_back(of_job(core::Join{1,
                                   "host:1",
                                   {Rank{1}},
                                   {{"--algorithm", "ring"}},
                                   {{NodeIndex{2}, "host:2", {}, "rack"}},
                                   "rack"}));
  made.push_back(of_job(core::Start{{"host:1", "host:2"}, {}}));
  made.push_back(agreed(core::Ready{{{tensor("t"), Rank{1}, "they differ"}}}));
  core::Lock lock;
  lock.generation = 1;
  lock.first = Seq{1};
  lock.plan = plan();
  made.push_back(agreed(lock));
  made.push_back(agreed(core::UnlockRequest{1, "why"}));
  made.push_back(agreed(core::Freeze{1, "why"}));
  made.push_back(of_job(core::Fail{Status(Code::kRankLost, "it died", Origin{"node", Rank{1}})}));
  const auto timeline = [&](decltype(engine::TimelineMessage::body) body) {
    *made.emplace_back().mutable_timeline() =
        to_proto(engine::TimelineMessage{"job", std::move(body)});
  };
  timeline(engine::TimelineRequest{true, "/tmp/timeline", false});
  observe::TraceBatch batch;
  batch.node = 1;
  batch.node_id = "node";
  batch.tracks = {{4, "tensor"}};
  timeline(batch);
  engine::Nonfinite value;
  value.step = 1;
  value.rank = Rank{1};
  value.tensor = "t";
  *made.emplace_back().mutable_nonfinite() =
      to_proto(engine::NonfiniteMessage{"job", engine::FoundNonfinite{value}});
  *made.emplace_back().mutable_communicator() = to_proto(engine::CommunicatorMessage{"job", 0, {}});
  return made;
}

std::vector<v1::GenerationMessage> messages_of_generations() {
  auto generation = std::make_shared<core::Generation>();
  generation->epoch = Epoch{2};
  generation->reason = "why";
  generation->nodes = {{{"a", 11}, "a:1", {{core::Slot{0}, Rank{0}}}}};
  const core::NodeOffer offer{{"a", 11}, "a:1", {{core::Slot{0}, true}}};
  core::Present present{5, offer, true, 2, "why", true};
  present.settings = {{"--algorithm", "ring"}};
  core::Heard heard{"b:1", true};
  heard.refusal = "why not";
  std::vector<v1::GenerationMessage> made;
  const auto say = [&](decltype(core::GenerationMessage::body) body) {
    made.emplace_back().ParseFromString(
        encode(core::GenerationMessage{{"a", 11}, "a:1", Epoch{2}, std::move(body)}));
  };
  say(present);
  say(heard);
  say(core::LearnGeneration{generation});
  say(core::EndGenerations{Status(Code::kShutDown, "why", Origin{"a", {}, true}), false});
  return made;
}

v1::AgentRequest job(int nodes) {
  v1::AgentRequest request;
  v1::JobSpec& spec = *request.mutable_job();
  spec.set_job_id("job");
  spec.set_token(std::string(limits::kTokenBytes, 't'));
  spec.set_user("me");
  for (int i = 0; i < nodes; ++i) {
    v1::NodeSpec& node = *spec.add_nodes();
    node.set_node_id("n" + std::to_string(i));
    node.set_control_address("host:" + std::to_string(i + 1));
    node.add_ranks(i);
  }
  spec.set_coordination("locked");
  spec.set_algorithm("ring");
  spec.set_transport("tcp");
  spec.set_data_protection("none");
  spec.set_reducer("node");
  spec.set_inter_node("rueda");
  spec.mutable_timeline()->set_begins(true);
  spec.mutable_timeline()->set_path("/tmp/timeline");
  *spec.mutable_replayed() = to_proto(plan()).recorded_plan();
  spec.mutable_elastic()->add_contacts("host:9");
  return request;
}

// --- What the daemon does with them

// What is read can be written again: the texts in that are what was kept.
template <class Read, class Write>
Outcome outcome(const Read& read, const Write& write) {
  if (!read.is_ok()) return {true, read.status().message(), {}};
  return {false, "", texts_of(write(read.value()))};
}

template <class Wire>
Outcome there_and_back(const Wire& message) {
  return outcome(from_proto(message), [](const auto& read) { return to_proto(read); });
}

Outcome hear(const v1::LinkMessage& message) {
  if (message.has_job()) return there_and_back(message.job());
  if (message.has_timeline()) return there_and_back(message.timeline());
  if (message.has_nonfinite()) return there_and_back(message.nonfinite());
  return there_and_back(message.communicator());
}

Outcome hear(const v1::GenerationMessage& message) {
  return outcome(decode_generation_message(message.SerializeAsString()),
                 [](const core::GenerationMessage& read) {
                   v1::GenerationMessage back;
                   back.ParseFromString(encode(read));
                   return back;
                 });
}

Outcome hear(const v1::AgentRequest& request) {
  const StaticMembership membership = StaticMembership::parse({}).value();
  const auto read = from_proto(request.job(), membership);
  if (!read.is_ok()) return {true, read.status().message(), {}};
  const engine::JobSpec& spec = read.value();
  Outcome found{false, "", {spec.job, spec.user, spec.transport, spec.data_protection}};
  for (int i = 0; i < spec.layout.node_count(); ++i) {
    found.kept.push_back(spec.layout.node(NodeIndex{i}).node_id);
    found.kept.push_back(spec.layout.node(NodeIndex{i}).control_address);
  }
  found.kept.push_back(spec.timeline->path);
  for (const std::string& contact : spec.elastic->contacts) found.kept.push_back(contact);
  for (const std::string& text : texts_of(to_proto(*spec.replayed))) found.kept.push_back(text);
  return found;
}

// --- The test

const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts = {"a\n2026-11-26 00:00:00.000 error forged",
                                                 "\x1b[2J\x1b]0;title\x07",
                                                 "\r\t",
                                                 "\xe2\x80\xae"
                                                 "desrever",
                                                 "\xff\xfe",
                                                 std::string(size_t{4} << 20, 'x'),
                                                 std::string(size_t{1} << 20, '\n')};
  return texts;
}

void expect_one_line(const std::string& text, const std::string& where) {
  EXPECT_TRUE(is_one_line(text)) << where << ": " << one_line(text);
  EXPECT_LE(text.size(), kMostKept) << where;
}

class HostileText : public ::testing::Test {
 protected:
  // Puts each hostile text into each field of the message that has a text.
  template <class Wire>
  void spoil(const Wire& message) {
    const Outcome whole = hear(message);
    ASSERT_FALSE(whole.is_refused) << whole.refusal << "\n" << message.ShortDebugString();
    Wire spoilt = message;
    for_each_text(spoilt, [&](const FieldDescriptor& field, const auto& set) {
      visited_.insert(field.full_name());
      if (read_elsewhere().contains(field.full_name())) return;
      for (const std::string& text : hostile_texts()) {
        set(text);
        const Outcome found = hear(spoilt);
        expect_one_line(found.refusal, field.full_name());
        for (const std::string& kept : found.kept) expect_one_line(kept, field.full_name());
      }
    });
  }

  // Ids of jobs are compared with those that there are before anything else is done with a message
  // (strangers_test.cc); the others have tests where they are read (strangers_test.cc,
  // engine_failure_test.cc).
  static const std::set<std::string>& read_elsewhere() {
    static const std::set<std::string> names = {
        "rueda.v1.JobMessage.job_id",       "rueda.v1.TimelineMessage.job_id",
        "rueda.v1.NonfiniteMessage.job_id", "rueda.v1.CommunicatorMessage.job_id",
        "rueda.v1.GenerationPacket.job_id", "rueda.v1.Hello.node_id",
        "rueda.v1.Hello.software_version",  "rueda.v1.RankFailed.text"};
    return names;
  }

  std::set<std::string> visited_;
};

TEST_F(HostileText, IsOneLineInWhateverField) {
  for (const v1::LinkMessage& message : messages_of_links()) spoil(message);
  for (const v1::GenerationMessage& message : messages_of_generations()) spoil(message);
  for (const int nodes : {1, 2}) spoil(job(nodes));

  std::set<std::string> all;
  std::set<const Descriptor*> seen;
  for (const Descriptor* const root :
       {v1::LinkMessage::descriptor(), v1::GenerationMessage::descriptor(),
        v1::AgentRequest::descriptor()}) {
    add_text_fields(*root, all, seen);
  }
  for (const std::string& name : read_elsewhere()) visited_.insert(name);
  EXPECT_EQ(visited_, all) << "a field of text needs an example, or a test of its own";
}

}  // namespace
}  // namespace rueda::service
