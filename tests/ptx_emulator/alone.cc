// Calls a handler without XLA, which would copy and write whole buffers. The buffers of
// test_index_arithmetic.py are larger than the machine's memory.
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/support/stand_in_xla.h"

namespace {

XLA_FFI_DataType DtypeOf(std::string_view name) {
  if (name == "float32") return XLA_FFI_DataType_F32;
  if (name == "float64") return XLA_FFI_DataType_F64;
  if (name == "complex64") return XLA_FFI_DataType_C64;
  if (name == "complex128") return XLA_FFI_DataType_C128;
  if (name == "int32") return XLA_FFI_DataType_S32;
  return XLA_FFI_DataType_INVALID;
}

}  // namespace

extern "C" {

struct PlainBuffer {
  void* data;
  const char* dtype;
  int64_t rank;
  int64_t* dimensions;
};

// The first buffers are operands, and the others results. Attributes are bool. Stores the error's
// text, which is empty if there is none.
void call_alone(XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*), int64_t operands, int64_t results,
                const PlainBuffer* plain, int64_t attributes, const char* const* names,
                bool* values, char* text, size_t size) {
  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<void*> pointers;
  buffers.reserve(operands + results);
  for (int64_t i = 0; i < operands + results; ++i) {
    buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, DtypeOf(plain[i].dtype), plain[i].data,
                       plain[i].rank, plain[i].dimensions});
    pointers.push_back(&buffers.back());
  }
  std::vector<XLA_FFI_ArgType> operand_types(operands, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> result_types(results, XLA_FFI_RetType_BUFFER);
  std::vector<XLA_FFI_AttrType> attribute_types(attributes, XLA_FFI_AttrType_SCALAR);
  std::vector<XLA_FFI_ByteSpan> spans(attributes);
  std::vector<XLA_FFI_Scalar> scalars(attributes);
  std::vector<XLA_FFI_ByteSpan*> span_pointers(attributes);
  std::vector<void*> scalar_pointers(attributes);
  for (int64_t i = 0; i < attributes; ++i) {
    spans[i] = {names[i], std::strlen(names[i])};
    scalars[i] = {XLA_FFI_DataType_PRED, values + i};
    span_pointers[i] = &spans[i];
    scalar_pointers[i] = &scalars[i];
  }
  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = stand_in::Api();
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, operands, operand_types.data(), pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, results, result_types.data(),
                pointers.data() + operands};
  frame.attrs = {
      XLA_FFI_Attrs_STRUCT_SIZE, nullptr, attributes, attribute_types.data(), span_pointers.data(),
      scalar_pointers.data()};
  const std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
  std::strncpy(text, error == nullptr ? "" : error->message.c_str(), size - 1);
}

}  // extern "C"
