// Tables of C++ libraries behind functions that Rust can call: `native.rs` and `berkeley.rs` say what they promise.
//
// No function throws: a table that gets no memory ends the process.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#ifdef WITH_ABSL
#include <absl/container/flat_hash_map.h>
#endif
#ifdef WITH_BOOST
#include <boost/unordered/unordered_flat_map.hpp>
#endif
#ifdef WITH_SPARSEHASH
#include <google/dense_hash_map>
#include <google/sparse_hash_map>
#endif
#ifdef WITH_BERKELEY
#include <db.h>
#endif

namespace {

using Key = std::uint64_t;
using Value = std::uint64_t;

// Stands for no value: values have 48 bits.
[[maybe_unused]] constexpr Value NONE = ~Value{0};

// As in `puts.rs`.
[[maybe_unused]] inline Value value_of(Key key) { return key >> 16; }

template <typename Map> void put(Map &map, const Key *keys, std::size_t count) {
    for (std::size_t i = 0; i < count; i++) {
        map[keys[i]] = value_of(keys[i]);
    }
}

template <typename Map> void get(const Map &map, const Key *keys, std::size_t count, Value *values) {
    for (std::size_t i = 0; i < count; i++) {
        const auto found = map.find(keys[i]);
        values[i] = found == map.end() ? NONE : found->second;
    }
}

}  // namespace

// Defines the functions of a map.
#define MAP(NAME, TYPE)                                                                                    \
    extern "C" void *NAME##_new() noexcept { return new TYPE; }                                            \
    extern "C" void NAME##_delete(void *map) noexcept { delete static_cast<TYPE *>(map); }                 \
    extern "C" std::size_t NAME##_size(const void *map) noexcept {                                         \
        return static_cast<const TYPE *>(map)->size();                                                     \
    }                                                                                                      \
    extern "C" void NAME##_put(void *map, const Key *keys, std::size_t count) noexcept {                   \
        put(*static_cast<TYPE *>(map), keys, count);                                                       \
    }                                                                                                      \
    extern "C" void NAME##_get(const void *map, const Key *keys, std::size_t count, Value *values) noexcept { \
        get(*static_cast<const TYPE *>(map), keys, count, values);                                         \
    }

#ifdef WITH_ABSL
using AbslMap = absl::flat_hash_map<Key, Value>;
MAP(absl_map, AbslMap)

using AbslChains = absl::flat_hash_map<Key, std::string>;

extern "C" void *absl_chains_new() noexcept { return new AbslChains; }

extern "C" void absl_chains_delete(void *chains) noexcept { delete static_cast<AbslChains *>(chains); }

extern "C" std::size_t absl_chains_size(const void *chains) noexcept {
    return static_cast<const AbslChains *>(chains)->size();
}

extern "C" void absl_chains_append(void *chains, Key key, const char *record, std::size_t size) noexcept {
    (*static_cast<AbslChains *>(chains))[key].append(record, size);
}

// Returns the value and its size; null if the key is absent.
extern "C" const char *absl_chains_get(const void *chains, Key key, std::size_t *size) noexcept {
    const auto *map = static_cast<const AbslChains *>(chains);
    const auto found = map->find(key);
    if (found == map->end()) {
        return nullptr;
    }
    *size = found->second.size();
    return found->second.data();
}
#endif

#ifdef WITH_BOOST
using BoostMap = boost::unordered_flat_map<Key, Value>;
MAP(boost_map, BoostMap)
#endif

#ifdef WITH_SPARSEHASH
struct DenseMap : google::dense_hash_map<Key, Value> {
    // A key that is never put.
    DenseMap() { set_empty_key(~Key{0}); }
};
MAP(dense_map, DenseMap)

using SparseMap = google::sparse_hash_map<Key, Value>;
MAP(sparse_map, SparseMap)
#endif

#ifdef WITH_BERKELEY
namespace {

// Larger than the largest value: 1024 records of 16 bytes.
constexpr std::size_t VALUE_MAX = 1 << 15;

struct Berkeley {
    DB *database = nullptr;
    // The value that was read last.
    char value[VALUE_MAX];
};

DBT of(void *bytes, std::size_t size) {
    DBT item;
    std::memset(&item, 0, sizeof item);
    item.data = bytes;
    item.size = static_cast<u_int32_t>(size);
    return item;
}

// Reads a value into the buffer.
int read(Berkeley *berkeley, Key key, std::size_t *size) {
    DBT name = of(&key, sizeof key), value = of(berkeley->value, 0);
    value.ulen = sizeof berkeley->value;
    value.flags = DB_DBT_USERMEM;
    const int code = berkeley->database->get(berkeley->database, nullptr, &name, &value, 0);
    *size = code == 0 ? value.size : 0;
    return code;
}

}  // namespace

extern "C" void berkeley_delete(void *chains) noexcept {
    auto *berkeley = static_cast<Berkeley *>(chains);
    if (berkeley->database != nullptr) {
        berkeley->database->close(berkeley->database, DB_NOSYNC);
    }
    delete berkeley;
}

// Returns a hash table without a file; null, and the code of the error, if there is none.
extern "C" void *berkeley_new(std::uint64_t cache_bytes, std::uint32_t keys, int *code) noexcept {
    constexpr std::uint64_t GIB = std::uint64_t{1} << 30;
    auto *berkeley = new Berkeley;
    DB *&database = berkeley->database;
    *code = db_create(&database, nullptr, 0);
    if (*code == 0) {
        const auto whole = static_cast<u_int32_t>(cache_bytes / GIB), rest = static_cast<u_int32_t>(cache_bytes % GIB);
        *code = database->set_cachesize(database, whole, rest, 1);
    }
    // The number of keys counts only with the number of keys of a page: 4 KiB of them with 8 + 43 bytes each.
    if (*code == 0) {
        *code = database->set_h_ffactor(database, 60);
    }
    if (*code == 0) {
        *code = database->set_h_nelem(database, keys);
    }
    if (*code == 0) {
        *code = database->open(database, nullptr, nullptr, nullptr, DB_HASH, DB_CREATE, 0);
    }
    if (*code == 0) {
        return berkeley;
    }
    berkeley_delete(berkeley);
    return nullptr;
}

// Hash tables of Berkeley DB have no append: a value is read and written.
extern "C" int berkeley_append(void *chains, Key key, const char *record, std::size_t size) noexcept {
    auto *berkeley = static_cast<Berkeley *>(chains);
    std::size_t before = 0;
    const int code = read(berkeley, key, &before);
    if (code != 0 && code != DB_NOTFOUND) {
        return code;
    }
    if (before + size > VALUE_MAX) {
        return DB_BUFFER_SMALL;
    }
    std::memcpy(berkeley->value + before, record, size);
    DBT name = of(&key, sizeof key), value = of(berkeley->value, before + size);
    return berkeley->database->put(berkeley->database, nullptr, &name, &value, 0);
}

// Returns the value and its size; null if the key is absent or cannot be read, which the code tells.
extern "C" const char *berkeley_get(void *chains, Key key, std::size_t *size, int *code) noexcept {
    auto *berkeley = static_cast<Berkeley *>(chains);
    *code = read(berkeley, key, size);
    const char *value = *code == 0 ? berkeley->value : nullptr;
    *code = *code == DB_NOTFOUND ? 0 : *code;
    return value;
}

// Counts the keys by reading all of them.
extern "C" int berkeley_size(void *chains, std::uint64_t *count) noexcept {
    auto *berkeley = static_cast<Berkeley *>(chains);
    DBC *cursor = nullptr;
    int code = berkeley->database->cursor(berkeley->database, nullptr, &cursor, 0);
    *count = 0;
    if (code != 0) {
        return code;
    }
    Key key = 0;
    DBT name = of(&key, 0), value = of(nullptr, 0);
    name.ulen = sizeof key;
    name.flags = DB_DBT_USERMEM;
    // No byte of the value.
    value.flags = DB_DBT_PARTIAL;
    while ((code = cursor->get(cursor, &name, &value, DB_NEXT)) == 0) {
        *count += 1;
    }
    cursor->close(cursor);
    return code == DB_NOTFOUND ? 0 : code;
}

extern "C" const char *berkeley_message(int code) noexcept { return db_strerror(code); }
#endif
