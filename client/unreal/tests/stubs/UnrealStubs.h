// Stands in for the parts of Unreal's API that the plugin uses, so that it can be compiled and played without Unreal. Written from
// Epic's public API pages; what Unreal itself does with these names is not shown by a test against them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using int32 = std::int32_t;
using int64 = std::int64_t;
using uint8 = std::uint8_t;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;
using TCHAR = char;
#define TEXT(x) x
#define TCHAR_TO_UTF8(x) (x)
#define UTF8_TO_TCHAR(x) (x)
#define UCLASS(...)
#define USTRUCT(...)
#define UPROPERTY(...)
#define UFUNCTION(...)
#define GENERATED_BODY()
#define ANIMEGAMER_API
#define IMPLEMENT_MODULE(type, name)
#define DECLARE_LOG_CATEGORY_EXTERN(...)
#define DEFINE_LOG_CATEGORY(...)
#define UE_LOG(category, level, format, ...) std::fprintf(stderr, format "\n", __VA_ARGS__)

class FString {
public:
	FString() = default;
	FString(const TCHAR* Text) : Value(Text) {}
	const TCHAR* operator*() const { return Value.c_str(); }
	bool StartsWith(const TCHAR* Text) const { return Value.rfind(Text, 0) == 0; }
	bool IsEmpty() const { return Value.empty(); }
	FString operator+(const TCHAR* Text) const { return FString((Value + Text).c_str()); }
	FString operator+(const FString& Text) const { return *this + *Text; }
	friend FString operator/(const FString& Folder, const FString& Name) { return Folder + "/" + Name; }
	std::string Value;
};
class FName {
public:
	FName(const TCHAR* Text) : Value(Text) {}
	bool operator<(const FName& Other) const { return Value < Other.Value; }
	std::string Value;
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
	std::vector<T> Items;
};
struct FFileHelper {
	static bool LoadFileToString(FString& Text, const TCHAR* Name) {
		std::ifstream File(Name, std::ios::binary);
		Text.Value.assign(std::istreambuf_iterator<char>(File), {});
		return File.good();
	}
	static bool LoadFileToArray(TArray<uint8>& Bytes, const TCHAR* Name) {
		std::ifstream File(Name, std::ios::binary);
		Bytes.Items.assign(std::istreambuf_iterator<char>(File), {});
		return File.good();
	}
};
inline FString GStubSavedDir;
struct FPaths {
	static bool IsRelative(const FString& Path) { return !Path.StartsWith("/"); }
	static FString ProjectSavedDir() { return GStubSavedDir; }
	static FString ConvertRelativePathToFull(const FString& Path) { return Path; }
};
template <typename K, typename V> struct TPair { K Key; V Value; };
template <typename K, typename V> class TMap {
public:
	void Add(const K& Key, const V& Value) { Items.push_back({Key, Value}); }
	V* Find(const K& Key) {
		for (auto& Item : Items) {
			if (!(Item.Key < Key) && !(Key < Item.Key)) {
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
template <typename T> class TObjectPtr {
public:
	TObjectPtr(T* Object = nullptr) : Object(Object) {}
	operator T*() const { return Object; }
	T* operator->() const { return Object; }
	T* Get() const { return Object; }
	T* Object;
};

// Objects are kept until the program ends: there is no garbage collector here.
class UObject {
public:
	virtual ~UObject() = default;
	virtual class UWorld* GetWorld() const { return nullptr; }
	template <typename T> T* GetTypedOuter() const { return static_cast<T*>(Outer); }
	UObject* Outer = nullptr;
};
inline std::vector<std::unique_ptr<UObject>>& AllObjects() {
	static std::vector<std::unique_ptr<UObject>> All;
	return All;
}
template <typename T> T* NewObject(UObject* Outer = nullptr) {
	AllObjects().push_back(std::make_unique<T>());
	AllObjects().back()->Outer = Outer;
	return static_cast<T*>(AllObjects().back().get());
}
template <typename T> T* GetMutableDefault() {
	static T Default;
	return &Default;
}
template <typename T> const T* GetDefault() { return GetMutableDefault<T>(); }

template <typename... A> class TStubDelegate {
public:
	template <typename T> void AddDynamic(T* Object, void (T::*Function)(A...)) {
		Bound.push_back({Object, [Object, Function](A... Arguments) { (Object->*Function)(Arguments...); }});
	}
	void AddLambda(std::function<void(A...)> Function) { Bound.push_back({nullptr, std::move(Function)}); }
	void RemoveAll(const void* Object) {
		Bound.erase(std::remove_if(Bound.begin(), Bound.end(), [=](auto& Each) { return Each.first == Object; }), Bound.end());
	}
	void Broadcast(A... Arguments) const {
		const auto Now = Bound;
		for (const auto& Each : Now) {
			const bool StillBound = Each.first == nullptr ||
				std::any_of(Bound.begin(), Bound.end(), [&](auto& Other) { return Other.first == Each.first; });
			if (StillBound) {
				Each.second(Arguments...);
			}
		}
	}
	std::vector<std::pair<const void*, std::function<void(A...)>>> Bound;
};
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE(Name) using Name = TStubDelegate<>
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(Name, A, a) using Name = TStubDelegate<A>
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(Name, A, a, B, b) using Name = TStubDelegate<A, B>
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(Name, A, a, B, b, C, c) using Name = TStubDelegate<A, B, C>

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
	template <typename T> T* GetSubsystem() const { return static_cast<T*>(Subsystem); }
	UGameInstanceSubsystem* Subsystem = nullptr;
};
class UWorld : public UObject {
public:
	UGameInstance* GetGameInstance() const { return Instance; }
	UGameInstance* Instance = nullptr;
};
inline UWorld* GStubWorld = nullptr;
namespace EEndPlayReason { enum Type { Destroyed, LevelTransition, EndPlayInEditor, RemovedFromWorld, Quit }; }
class UActorComponent : public UObject {
public:
	using Super = UActorComponent;
	virtual void BeginPlay() {}
	virtual void EndPlay(const EEndPlayReason::Type) {}
	UWorld* GetWorld() const override { return GStubWorld; }
};
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
	virtual void Cancel() {}
	void RegisterWithGameInstance(const UObject*) {}
	void SetReadyToDestroy() { Ready = true; }
	bool Ready = false;
};

class FTickerDelegate {
public:
	template <typename T> static FTickerDelegate CreateUObject(T* Object, bool (T::*Function)(float)) {
		return FTickerDelegate{[=](float Delta) { return (Object->*Function)(Delta); }};
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
struct FPlatformTime {
	static double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
};

// Rendering: commands run in order on a thread that the test starts; textures note who reads and writes them.
enum EPixelFormat { PF_B8G8R8A8 };
struct FRHITexture {
	std::vector<uint8> Pixels;
	int Writes = 0;
};
class FTextureRHIRef : public std::shared_ptr<FRHITexture> {
public:
	bool IsValid() const { return get() != nullptr; }
	operator FRHITexture*() const { return get(); }
};
struct FTextureResource { FTextureRHIRef TextureRHI; };
struct FUpdateTextureRegion2D {
	FUpdateTextureRegion2D(uint32, uint32, int32, int32, uint32 InWidth, uint32 InHeight) : Width(InWidth), Height(InHeight) {}
	uint32 Width, Height;
};
inline std::function<void(FRHITexture*)> GStubOnWrite;
class FRHICommandListImmediate {
public:
	void UpdateTexture2D(FRHITexture* Texture, uint32, const FUpdateTextureRegion2D& Region, uint32 Pitch, const uint8* Data) {
		GStubOnWrite(Texture);
		for (uint32 Row = 0; Row < Region.Height; ++Row) {
			std::copy_n(Data + Row * Pitch, Region.Width * 4, Texture->Pixels.data() + Row * Region.Width * 4);
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
class UTexture2D : public UObject {
public:
	static UTexture2D* CreateTransient(int32 Width, int32 Height, EPixelFormat) {
		UTexture2D* const Texture = NewObject<UTexture2D>();
		Texture->Width = Width;
		Texture->Height = Height;
		return Texture;
	}
	void UpdateResource() {
		ENQUEUE_RENDER_COMMAND(Make)([this](FRHICommandListImmediate&) {
			static_cast<std::shared_ptr<FRHITexture>&>(Resource.TextureRHI) = std::make_shared<FRHITexture>();
			Resource.TextureRHI->Pixels.resize(static_cast<std::size_t>(Width) * static_cast<std::size_t>(Height) * 4);
		});
	}
	FTextureResource* GetResource() { return &Resource; }
	int32 GetSizeX() const { return Width; }
	int32 GetSizeY() const { return Height; }
	bool SRGB = false;
	int32 Width = 0, Height = 0;
	FTextureResource Resource;
};
