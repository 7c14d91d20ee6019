#include "runtime/tokenizer/corpus/arrow_plugin.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/json_text.h"
#include "runtime/tokenizer/corpus/arrow_values.h"

struct DsRowFile {
  std::unique_ptr<parquet::arrow::FileReader> parquet;        // must outlive its batches
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> blocks;  // for Arrow's file format
  int next_block = 0;
  std::shared_ptr<arrow::RecordBatchReader> batches;  // for the other formats
  std::string lines;
};

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kRows = 1024;  // rows per batch

template <typename ArrayType>
Json ValueOf(const arrow::Array& array, std::int64_t i) {
  return static_cast<const ArrayType&>(array).Value(i);
}

template <typename ArrayType>
Json TextOf(const arrow::Array& array, std::int64_t i) {
  return std::string(static_cast<const ArrayType&>(array).GetView(i));
}

Json ToJson(const arrow::Array& array, std::int64_t i);

template <typename ArrayType>
Json ListOf(const arrow::Array& array, std::int64_t i) {
  const auto& lists = static_cast<const ArrayType&>(array);
  Json list = Json::array();
  for (std::int64_t at = 0; at < lists.value_length(i); ++at) {
    list.push_back(ToJson(*lists.values(), lists.value_offset(i) + at));
  }
  return list;
}

Json ObjectOf(const arrow::StructArray& objects, std::int64_t i) {
  Json object = Json::object();
  for (int field = 0; field < objects.num_fields(); ++field) {
    object[objects.type()->field(field)->name()] = ToJson(*objects.field(field), i);
  }
  return object;
}

Json NumberOf(const arrow::Array& array, std::int64_t i) {
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return ValueOf<arrow::BooleanArray>(array, i);
    case arrow::Type::INT8:
      return ValueOf<arrow::Int8Array>(array, i);
    case arrow::Type::INT16:
      return ValueOf<arrow::Int16Array>(array, i);
    case arrow::Type::INT32:
      return ValueOf<arrow::Int32Array>(array, i);
    case arrow::Type::INT64:
      return ValueOf<arrow::Int64Array>(array, i);
    case arrow::Type::UINT8:
      return ValueOf<arrow::UInt8Array>(array, i);
    case arrow::Type::UINT16:
      return ValueOf<arrow::UInt16Array>(array, i);
    case arrow::Type::UINT32:
      return ValueOf<arrow::UInt32Array>(array, i);
    case arrow::Type::UINT64:
      return ValueOf<arrow::UInt64Array>(array, i);
    case arrow::Type::FLOAT:
      return ValueOf<arrow::FloatArray>(array, i);
    case arrow::Type::DOUBLE:
      return ValueOf<arrow::DoubleArray>(array, i);
    default:  // dates, bytes, ...: an object, which no known key of a row accepts
      return {{ds::tokenizer::kArrowTypeKey, array.type()->ToString()}};
  }
}

// The text of a damaged cell in a JSON column: not JSON, or nested too deeply.
struct DamagedCell {
  std::string text;
};

// Keeps hostile text from exhausting the stack, as for rows.
Json ParseCell(const std::string& text) {
  bool too_deep = false;
  const auto bound = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > ds::kMostNestedJson;
    return !too_deep;
  };
  Json value = Json::parse(text, bound, /*allow_exceptions=*/false);
  if (too_deep || value.is_discarded()) throw DamagedCell{text};
  return value;
}

// `datasets` stores objects that differ between rows as JSON text, in the extension type
// arrow.json.
Json ExtensionOf(const arrow::ExtensionArray& array, std::int64_t i) {
  Json value = ToJson(*array.storage(), i);
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  return type.extension_name() == "arrow.json" && value.is_string()
             ? ParseCell(value.get_ref<const std::string&>())
             : value;
}

// Converts an element to JSON.
Json ToJson(const arrow::Array& array, std::int64_t i) {
  if (array.IsNull(i)) return {};
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return TextOf<arrow::StringArray>(array, i);
    case arrow::Type::LARGE_STRING:
      return TextOf<arrow::LargeStringArray>(array, i);
    case arrow::Type::STRING_VIEW:
      return TextOf<arrow::StringViewArray>(array, i);
    case arrow::Type::LIST:
      return ListOf<arrow::ListArray>(array, i);
    case arrow::Type::LARGE_LIST:
      return ListOf<arrow::LargeListArray>(array, i);
    case arrow::Type::FIXED_SIZE_LIST:
      return ListOf<arrow::FixedSizeListArray>(array, i);
    case arrow::Type::STRUCT:
      return ObjectOf(static_cast<const arrow::StructArray&>(array), i);
    case arrow::Type::EXTENSION:
      return ExtensionOf(static_cast<const arrow::ExtensionArray&>(array), i);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return ToJson(*coded.dictionary(), coded.GetValueIndex(i));
    }
    default:
      return NumberOf(array, i);
  }
}

arrow::Status OpenArrow(const std::shared_ptr<arrow::io::RandomAccessFile>& input, bool has_blocks,
                        DsRowFile* file) {
  if (has_blocks) {
    ARROW_ASSIGN_OR_RAISE(file->blocks, arrow::ipc::RecordBatchFileReader::Open(input));
    return arrow::Status::OK();
  }
  ARROW_ASSIGN_OR_RAISE(file->batches, arrow::ipc::RecordBatchStreamReader::Open(input));
  return arrow::Status::OK();
}

// Detects the format by the first bytes.
arrow::Status Open(const char* path, DsRowFile* file) {
  ARROW_ASSIGN_OR_RAISE(const auto input, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(const auto begin, input->ReadAt(0, 6));
  ARROW_RETURN_NOT_OK(input->Seek(0));
  const std::string magic = begin->ToString();
  if (!magic.starts_with("PAR1")) return OpenArrow(input, magic == "ARROW1", file);
  ARROW_ASSIGN_OR_RAISE(file->parquet,
                        parquet::arrow::OpenFile(input, arrow::default_memory_pool()));
  file->parquet->set_batch_size(kRows);
  ARROW_ASSIGN_OR_RAISE(file->batches, file->parquet->GetRecordBatchReader());
  return arrow::Status::OK();
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> ReadBatch(DsRowFile* file) {
  if (file->batches) {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(file->batches->ReadNext(&batch));
    return batch;
  }
  if (file->next_block == file->blocks->num_record_batches()) return nullptr;
  return file->blocks->ReadRecordBatch(file->next_block++);
}

// A damaged cell invalidates its row only.
Json RowOf(const arrow::RecordBatch& batch, std::int64_t row) {
  Json object = Json::object();
  for (int column = 0; column < batch.num_columns(); ++column) {
    try {
      object[batch.column_name(column)] = ToJson(*batch.column(column), row);
    } catch (const DamagedCell& cell) {
      return {{ds::tokenizer::kArrowFaultKey,
               {{"column", batch.column_name(column)}, {"text", cell.text}}}};
    }
  }
  return object;
}

arrow::Result<std::int64_t> Next(DsRowFile* file) {
  std::shared_ptr<arrow::RecordBatch> batch;
  do {
    ARROW_ASSIGN_OR_RAISE(batch, ReadBatch(file));
  } while (batch && batch->num_rows() == 0);
  file->lines.clear();
  if (!batch) return 0;
  ARROW_RETURN_NOT_OK(batch->ValidateFull());
  for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
    file->lines += RowOf(*batch, row).dump() + "\n";
  }
  return batch->num_rows();
}

void WriteError(const std::string& what, char* error, std::size_t size) {
  std::snprintf(error, size, "%s", what.c_str());
}

DsRowFile* OpenFile(const char* path, char* error, std::size_t error_size) {
  try {
    auto file = std::make_unique<DsRowFile>();
    const arrow::Status status = Open(path, file.get());
    if (status.ok()) return file.release();
    WriteError(status.message(), error, error_size);
  } catch (const std::exception& thrown) {
    WriteError(thrown.what(), error, error_size);
  }
  return nullptr;
}

std::int64_t NextRows(DsRowFile* file, const char** lines, std::size_t* size, char* error,
                      std::size_t error_size) {
  try {
    const auto rows = Next(file);
    if (rows.ok()) {
      *lines = file->lines.data();
      *size = file->lines.size();
      return *rows;
    }
    WriteError(rows.status().message(), error, error_size);
  } catch (const std::exception& thrown) {
    WriteError(thrown.what(), error, error_size);
  }
  return -1;
}

void CloseFile(DsRowFile* file) { delete file; }

constexpr DsArrowPlugin kPlugin = {.open = OpenFile, .next = NextRows, .close = CloseFile};

}  // namespace

extern "C" __attribute__((visibility("default"))) const DsArrowPlugin* ds_arrow_plugin(
    int version) {
  return version == ds::tokenizer::kArrowPluginVersion ? &kPlugin : nullptr;
}
