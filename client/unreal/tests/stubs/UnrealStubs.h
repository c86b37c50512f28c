// Stands in for the parts of Unreal's API that the plugin uses, so that it can be compiled and played without Unreal. Written from
// Epic's public API pages; what Unreal itself does with these names is not shown by a test against them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using int32 = std::int32_t;
using int64 = std::int64_t;
using uint8 = std::uint8_t;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;
using TCHAR = char16_t; // 16 bits, so that what is not TEXT() or converted does not compile
#define TEXT(x) u##x
#define UCLASS(...)
#define USTRUCT(...)
#define UENUM(...)
#define UPROPERTY(...)
#define UFUNCTION(...)
// As in Unreal: the file that the header tool generates has the body, under the number of its line.
#define STUB_COMBINE_INNER(A, B, C, D) A##B##C##D
#define STUB_COMBINE(A, B, C, D) STUB_COMBINE_INNER(A, B, C, D)
#define GENERATED_BODY() STUB_COMBINE(CURRENT_FILE_ID, _, __LINE__, _GENERATED_BODY)
#define ANIMEGAMER_API
#define IMPLEMENT_MODULE(type, name)
#define DECLARE_LOG_CATEGORY_EXTERN(...)
#define DEFINE_LOG_CATEGORY(...)
#define UE_LOG(category, level, format, ...) StubLog(format, __VA_ARGS__)

class FTCHARToUTF8 {
public:
	explicit FTCHARToUTF8(const TCHAR* Text) {
		for (; *Text != 0; ++Text) {
			std::uint32_t Code = *Text;
			if (Code >= 0xd800 && Code < 0xdc00 && Text[1] != 0) {
				Code = 0x10000 + ((Code - 0xd800) << 10) + (*++Text - 0xdc00u);
			}
			const int More = Code < 0x80 ? 0 : Code < 0x800 ? 1 : Code < 0x10000 ? 2 : 3;
			const std::uint32_t First[] = {0, 0xc0, 0xe0, 0xf0};
			Value += static_cast<char>(First[More] | Code >> 6 * More);
			for (int Left = More - 1; Left >= 0; --Left) {
				Value += static_cast<char>(0x80 | (Code >> 6 * Left & 0x3f));
			}
		}
	}
	const char* Get() const { return Value.c_str(); }

private:
	std::string Value;
};
class FUTF8ToTCHAR {
public:
	explicit FUTF8ToTCHAR(const char* Text) {
		while (*Text != 0) {
			const auto First = static_cast<unsigned char>(*Text++);
			std::uint32_t Code = First < 0x80 ? First : First < 0xe0 ? First & 0x1fu : First < 0xf0 ? First & 0x0fu : First & 0x07u;
			for (; (*Text & 0xc0) == 0x80; ++Text) {
				Code = Code << 6 | static_cast<std::uint32_t>(*Text & 0x3f);
			}
			if (Code >= 0x10000) {
				Value += static_cast<TCHAR>(0xd800 + ((Code - 0x10000) >> 10));
				Code = 0xdc00 + ((Code - 0x10000) & 0x3ff);
			}
			Value += static_cast<TCHAR>(Code);
		}
	}
	const TCHAR* Get() const { return Value.c_str(); }

private:
	std::u16string Value;
};
// What they give goes at the end of the expression, as in Unreal.
#define TCHAR_TO_UTF8(x) FTCHARToUTF8(x).Get()
#define UTF8_TO_TCHAR(x) FUTF8ToTCHAR(x).Get()
/// Each %s of a literal takes a TCHAR text, and nothing else is taken.
template <std::size_t N, typename... A> void StubLog(const TCHAR (&Format)[N], A... Arguments) {
	static_assert((std::is_same_v<A, const TCHAR*> && ...), "%s takes what operator* of an FString gives");
	const TCHAR* const Texts[] = {Arguments...};
	std::u16string Line;
	std::size_t Next = 0;
	for (const TCHAR* At = Format; *At != 0; ++At) {
		if (At[0] == '%' && At[1] == 's') {
			Line += Texts[Next++];
			++At;
		} else {
			Line += *At;
		}
	}
	std::fprintf(stderr, "%s\n", TCHAR_TO_UTF8(Line.c_str()));
}

class FString {
public:
	FString() = default;
	FString(const TCHAR* Text) : Value(Text) {}
	const TCHAR* operator*() const { return Value.c_str(); }
	bool StartsWith(const TCHAR* Text) const { return Value.rfind(Text, 0) == 0; }
	bool IsEmpty() const { return Value.empty(); }
	bool operator==(const FString& Other) const { return Value == Other.Value; }
	friend FString operator+(const FString& Left, const TCHAR* Right) { return FString((Left.Value + Right).c_str()); }
	friend FString operator+(const FString& Left, const FString& Right) { return Left + *Right; }
	friend FString operator/(const FString& Folder, const FString& Name) { return Folder + TEXT("/") + Name; }

private:
	std::u16string Value;
};
class FName {
public:
	FName(const TCHAR* Text) : Value(Text) {}
	bool operator==(const FName& Other) const { return Value == Other.Value; }

private:
	std::u16string Value;
};
template <typename T> class TArray {
public:
	void Add(const T& Item) { Items.push_back(Item); }
	void Empty() { Items.clear(); }
	int32 Num() const { return static_cast<int32>(Items.size()); }
	const T* GetData() const { return Items.data(); }
	T& operator[](int32 Index) { return Items.at(static_cast<std::size_t>(Index)); }
	const T& operator[](int32 Index) const { return Items.at(static_cast<std::size_t>(Index)); }
	auto begin() { return Items.begin(); }
	auto end() { return Items.end(); }
	auto begin() const { return Items.begin(); }
	auto end() const { return Items.end(); }
	std::vector<T> Items;
};
struct FFileHelper {
	static bool LoadFileToArray(TArray<uint8>& Bytes, const TCHAR* Name) {
		std::ifstream File(TCHAR_TO_UTF8(Name), std::ios::binary);
		Bytes.Items.assign(std::istreambuf_iterator<char>(File), {});
		return File.good();
	}
};
template <typename K, typename V> struct TPair { K Key; V Value; };
template <typename K, typename V> class TMap {
public:
	void Add(const K& Key, const V& Value) { Items.push_back({Key, Value}); }
	V* Find(const K& Key) {
		for (auto& Item : Items) {
			if (Item.Key == Key) {
				return &Item.Value;
			}
		}
		return nullptr;
	}
	void Empty() { Items.clear(); }
	void GenerateValueArray(TArray<V>& Values) const {
		for (const auto& Item : Items) {
			Values.Add(Item.Value);
		}
	}
	auto begin() { return Items.begin(); }
	auto end() { return Items.end(); }
	std::vector<TPair<K, V>> Items;
};
enum class ESPMode { NotThreadSafe, ThreadSafe };
template <typename T, ESPMode Mode = ESPMode::ThreadSafe> class TSharedPtr : public std::shared_ptr<T> {
public:
	TSharedPtr() = default;
	TSharedPtr(std::shared_ptr<T> Other) : std::shared_ptr<T>(std::move(Other)) {}
	bool IsValid() const { return this->get() != nullptr; }
	void Reset() { this->reset(); }
};
template <typename T, ESPMode Mode = ESPMode::ThreadSafe, typename... A> TSharedPtr<T, Mode> MakeShared(A&&... Arguments) {
	return TSharedPtr<T, Mode>(std::make_shared<T>(std::forward<A>(Arguments)...));
}
/// It takes no object of a class that is only declared, as in Unreal.
template <typename T> class TObjectPtr {
public:
	TObjectPtr(std::nullptr_t = nullptr) {}
	template <typename U, typename = std::enable_if_t<std::is_convertible_v<U*, T*>>> TObjectPtr(U* InObject) : Object(InObject) {}
	operator T*() const { return Get(); }
	T* operator->() const { return Get(); }
	T* Get() const { return (T*)Object; }
	class UObject* Object = nullptr;
};

// A collector that collects: an object goes when no root is left that holds it by UPROPERTYs, which the generated code lists.
class UObject;
class FStubVisitor {
public:
	void operator()(UObject* Object) {
		if (Object != nullptr && Reached.insert(Object).second) {
			Waiting.push_back(Object);
		}
	}
	std::set<UObject*> Reached;
	std::vector<UObject*> Waiting;
};
class UObject {
public:
	virtual ~UObject() = default;
	virtual void StubReferences(FStubVisitor& Visitor) { Visitor(Outer); }
	template <typename T> T* GetTypedOuter() const { return static_cast<T*>(Outer); }
	void AddToRoot() { bRoot = true; }
	UObject* Outer = nullptr;
	bool bRoot = false;
};
template <typename T> void StubVisit(FStubVisitor& Visitor, const TObjectPtr<T>& Held) { Visitor(Held.Object); }
template <typename T> void StubVisit(FStubVisitor& Visitor, TArray<T>& Held) {
	for (auto& Each : Held) {
		StubVisit(Visitor, Each);
	}
}
template <typename K, typename V> void StubVisit(FStubVisitor& Visitor, TMap<K, V>& Held) {
	for (auto& Each : Held) {
		StubVisit(Visitor, Each.Value);
	}
}
inline std::map<UObject*, std::unique_ptr<UObject>>& AllObjects() {
	static std::map<UObject*, std::unique_ptr<UObject>> All;
	return All;
}
inline void CollectGarbage() {
	FStubVisitor Visitor;
	for (auto& Each : AllObjects()) {
		if (Each.first->bRoot) {
			Visitor(Each.first);
		}
	}
	while (!Visitor.Waiting.empty()) {
		UObject* const Next = Visitor.Waiting.back();
		Visitor.Waiting.pop_back();
		Next->StubReferences(Visitor);
	}
	for (auto Each = AllObjects().begin(); Each != AllObjects().end();) {
		Each = Visitor.Reached.count(Each->first) != 0 ? std::next(Each) : AllObjects().erase(Each);
	}
}
template <typename T> T* NewObject(UObject* Outer = nullptr) {
	auto Made = std::make_unique<T>();
	T* const Object = Made.get();
	Object->Outer = Outer;
	AllObjects()[Object] = std::move(Made);
	return Object;
}
template <typename T> T* GetMutableDefault() {
	static T Default;
	return &Default;
}
template <typename T> const T* GetDefault() { return GetMutableDefault<T>(); }

/// It holds no object: who was collected hears nothing.
template <typename... A> class TStubDelegate {
public:
	template <typename T> void StubAddDynamic(T* Object, void (T::*Function)(A...), const char* Name) {
		if (std::strchr(Name, '&') != Name) {
			std::abort();
		}
		Bound.push_back({Object, [Object, Function](A... Arguments) { (Object->*Function)(Arguments...); }});
	}
	/// For tests: Unreal's dynamic delegates take UFUNCTIONs only.
	void Listen(std::function<void(A...)> Function) { Bound.push_back({nullptr, std::move(Function)}); }
	void RemoveAll(const UObject* Object) {
		Bound.erase(std::remove_if(Bound.begin(), Bound.end(), [=](auto& Each) { return Each.first == Object; }), Bound.end());
	}
	void Broadcast(A... Arguments) const {
		const auto Now = Bound;
		for (const auto& Each : Now) {
			const bool bAlive = Each.first == nullptr || (AllObjects().count(Each.first) != 0 &&
				std::any_of(Bound.begin(), Bound.end(), [&](auto& Other) { return Other.first == Each.first; }));
			if (bAlive) {
				Each.second(Arguments...);
			}
		}
	}
	std::vector<std::pair<UObject*, std::function<void(A...)>>> Bound;
};
#define AddDynamic(Object, Function) StubAddDynamic(Object, Function, #Function)
// Each is a type of its own, as in Unreal.
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE(Name) class Name : public TStubDelegate<> {}
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(Name, A, a) class Name : public TStubDelegate<A> {}
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(Name, A, a, B, b) class Name : public TStubDelegate<A, B> {}
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(Name, A, a, B, b, C, c) class Name : public TStubDelegate<A, B, C> {}
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_FourParams(Name, A, a, B, b, C, c, D, d) class Name : public TStubDelegate<A, B, C, D> {}
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_FiveParams(Name, A, a, B, b, C, c, D, d, E, e) class Name : public TStubDelegate<A, B, C, D, E> {}

class UDeveloperSettings : public UObject {};
class FSubsystemCollectionBase {};
class UGameInstanceSubsystem : public UObject {
public:
	using Super = UGameInstanceSubsystem;
	virtual void Initialize(FSubsystemCollectionBase&) {}
	virtual void Deinitialize() {}
};
class UGameInstance : public UObject {
public:
	using Super = UObject;
	template <typename T> T* GetSubsystem() const { return static_cast<T*>(Subsystem.Get()); }
	void StubReferences(FStubVisitor& Visitor) override {
		Super::StubReferences(Visitor);
		StubVisit(Visitor, Subsystem);
		StubVisit(Visitor, Actions);
	}
	TObjectPtr<UGameInstanceSubsystem> Subsystem;
	TArray<TObjectPtr<UObject>> Actions; // that have registered
};
class UWorld : public UObject {
public:
	UGameInstance* GetGameInstance() const { return Instance; }
	void StubReferences(FStubVisitor& Visitor) override {
		UObject::StubReferences(Visitor);
		StubVisit(Visitor, Instance);
	}
	TObjectPtr<UGameInstance> Instance;
};
inline UWorld* GStubWorld = nullptr;
enum class EGetWorldErrorMode { ReturnNull, LogAndReturnNull, Assert };
class UEngine : public UObject {
public:
	UWorld* GetWorldFromContextObject(const UObject*, EGetWorldErrorMode) const { return GStubWorld; }
};
inline UEngine GStubEngine;
inline UEngine* GEngine = &GStubEngine;
class UCancellableAsyncAction : public UObject {
public:
	virtual void Activate() {}
	virtual void Cancel() { SetReadyToDestroy(); }
	void RegisterWithGameInstance(const UObject*) { GStubWorld->Instance->Actions.Add(this); }
	void SetReadyToDestroy() {
		auto& Items = GStubWorld->Instance->Actions.Items;
		Items.erase(std::remove(Items.begin(), Items.end(), this), Items.end());
	}
};

class FTickerDelegate {
public:
	template <typename T> static FTickerDelegate CreateUObject(T* Object, bool (T::*Function)(float)) {
		return FTickerDelegate{[=](float Delta) { return AllObjects().count(Object) != 0 && (Object->*Function)(Delta); }};
	}
	std::function<bool(float)> Function;
};
class FTSTicker {
public:
	using FDelegateHandle = int;
	static FTSTicker& GetCoreTicker() {
		static FTSTicker Ticker;
		return Ticker;
	}
	FDelegateHandle AddTicker(FTickerDelegate Delegate, float = 0.0f) {
		Delegates[++Last] = std::move(Delegate);
		return Last;
	}
	static void RemoveTicker(FDelegateHandle Handle) { GetCoreTicker().Delegates.erase(Handle); }
	void Tick(float Delta) {
		for (auto& Each : Delegates) {
			Each.second.Function(Delta);
		}
	}
	std::map<int, FTickerDelegate> Delegates;
	int Last = 0;
};
inline uint64 GFrameCounter = 0;

// Rendering: commands run in order on a thread that the test starts; textures note who reads and writes them.
enum EPixelFormat { PF_B8G8R8A8 };
struct FRHITexture {
	std::vector<uint8> Pixels;
	int Writes = 0;
};
struct FTextureRHIRef : public std::shared_ptr<FRHITexture> {
	bool IsValid() const { return get() != nullptr; }
	operator FRHITexture*() const { return get(); }
};
struct FTextureResource { FTextureRHIRef TextureRHI; };
struct FUpdateTextureRegion2D {
	FUpdateTextureRegion2D(uint32, uint32, int32, int32, uint32 InWidth, uint32 InHeight) : Width(InWidth), Height(InHeight) {}
	uint32 Width, Height;
};
class FRHICommandListImmediate {
public:
	void UpdateTexture2D(FRHITexture* Texture, uint32, const FUpdateTextureRegion2D& Region, uint32 Pitch, const uint8* Data) {
		for (std::size_t Row = 0; Row < Region.Height; ++Row) {
			std::copy_n(Data + Row * Pitch, std::size_t{Region.Width} * 4, Texture->Pixels.data() + Row * Region.Width * 4);
		}
		++Texture->Writes;
	}
};
struct FStubRenderQueue {
	std::mutex Lock;
	std::deque<std::function<void(FRHICommandListImmediate&)>> Commands;
};
inline FStubRenderQueue GStubRender;
struct FStubEnqueue {
	template <typename F> void operator()(F&& Command) const {
		const std::lock_guard<std::mutex> Guard(GStubRender.Lock);
		GStubRender.Commands.emplace_back(std::forward<F>(Command));
	}
};
#define ENQUEUE_RENDER_COMMAND(Name) FStubEnqueue()
class UTexture2D; // in Engine/Texture2D.h
