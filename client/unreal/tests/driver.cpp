// Plays the plugin in a game loop of stubs against a live server: driver tcp://HOST:PORT. A second thread runs render commands.
#include "UnrealStubs.h"

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "../Source/AnimeGamer/Private/Tests/AnimeGamerSpec.cpp"
#include "AnimeGamerComponent.h"
#include "AnimeGamerPlayTurn.h"
#include "AnimeGamerSettings.h"
#include "AnimeGamerSubsystem.h"

namespace {

void check(bool holds, const char* what) {
	if (!holds) {
		throw std::runtime_error(what);
	}
}

/// What one node Play Turn heard.
struct Heard {
	explicit Heard(UAnimeGamerPlayTurn* InTurn) : Turn(InTurn) {
		Turn->OnState.AddLambda([this](const FAnimeGamerState&) { ++States; });
		Turn->OnProgress.AddLambda([this](float, float) { ++Steps; });
		Turn->OnFrame.AddLambda([this](UTexture2D* Texture) { Frames += Texture->Resource.TextureRHI->Writes > 0 ? 1 : 0; });
		Turn->OnDone.AddLambda([this](int32 InTurns, float) { Turns = InTurns; });
		Turn->OnError.AddLambda([this](const FString& Code, const FString&, const FString&) { Error = Code.Value; });
		Turn->Activate();
	}
	UAnimeGamerPlayTurn* Turn;
	int States = 0, Steps = 0, Frames = 0, Turns = 0;
	std::string Error;
};

std::atomic<bool> Running{true};
std::atomic<FRHITexture*> Shown{nullptr};
std::atomic<bool> WroteShown{false};

void render() {
	FRHICommandListImmediate List;
	while (Running) {
		std::function<void(FRHICommandListImmediate&)> Command;
		{
			const std::lock_guard<std::mutex> Guard(GStubRender.Lock);
			if (!GStubRender.Commands.empty()) {
				Command = std::move(GStubRender.Commands.front());
				GStubRender.Commands.pop_front();
			}
		}
		if (Command) {
			Command(List);
		} else {
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
	}
}

template <typename Until> void loop(const char* what, Until&& until) {
	for (int tick = 0; tick < 60 * 60; ++tick) {
		++GFrameCounter;
		FTSTicker::GetCoreTicker().Tick(1.0f / 60.0f);
		if (until()) {
			return;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(16));
	}
	throw std::runtime_error(std::string("never came: ") + what);
}

void play() {
	FAnimeGamerSpec Spec;
	Spec.Define();
	check(Spec.Ran == 2 && Spec.Failed == 0, "the automation spec");

	FSubsystemCollectionBase Collection;
	UAnimeGamerSubsystem* const Subsystem = NewObject<UAnimeGamerSubsystem>();
	GStubWorld = NewObject<UWorld>();
	GStubWorld->Instance = NewObject<UGameInstance>();
	GStubWorld->Instance->Subsystem = Subsystem;
	Subsystem->Initialize(Collection);

	UAnimeGamerComponent* const Component = NewObject<UAnimeGamerComponent>();
	Component->BeginPlay();
	Component->OnFrame.AddLambda([](UTexture2D* Texture) { Shown = Texture->Resource.TextureRHI.get(); });
	for (int turn = 1; turn <= 3; ++turn) {
		Heard heard(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia waves."));
		loop("the end of a clip", [&] { return heard.Turn->Ready; });
		check(heard.Error.empty() && heard.Turns == turn && heard.States == 1 && heard.Steps > 0, "a turn");
		check(heard.Frames >= 10, "its frames"); // a slow machine skips some
	}
	std::puts("three turns");

	Heard first(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia dances."));
	loop("a step", [&] { return first.Steps > 0; });
	Heard second(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia sings."));
	check(second.Error == "turn_running" && first.Error.empty(), "a second turn is refused, the first goes on");
	first.Turn->Cancel();
	Heard instead(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia sits down."));
	loop("the other turn", [&] { return instead.Turn->Ready; });
	check(first.Error == "cancelled" && instead.Error.empty() && instead.Turns == 4, "say this instead");
	std::puts("say instead");

	// The next level: another component, the same game, its picture at once.
	UTexture2D* const Picture = Component->Game->GetTexture();
	Component->EndPlay(EEndPlayReason::LevelTransition);
	UAnimeGamerComponent* const Next = NewObject<UAnimeGamerComponent>();
	Next->OnFrame.AddLambda([&](UTexture2D* Texture) { check(Texture == Picture, "the picture of the last level"); });
	Next->BeginPlay();
	check(Next->Game != nullptr && Next->Game->GetTexture() == Picture, "the game outlives its level");
	Next->OnFrame.Bound.clear();
	const FString Token = Next->Game->GetToken();
	std::puts("next level");

	// The second Play, within a turn of the first.
	Next->Say("Mia jumps.");
	Next->EndPlay(EEndPlayReason::EndPlayInEditor);
	Subsystem->Deinitialize();
	UAnimeGamerSubsystem* const Again = NewObject<UAnimeGamerSubsystem>();
	GStubWorld->Instance->Subsystem = Again;
	Again->Initialize(Collection);
	UAnimeGamerGame* const Game = Again->GetGame("Game");
	bool Opened = false;
	Game->OnOpened.AddLambda([&](const FString& Resumed) { Opened = Resumed.Value == Token.Value; });
	Game->Resume(Token);
	loop("the resumed game", [&] { return Opened; });
	Again->Deinitialize();
	std::puts("second play");
	check(!WroteShown, "a texture that is shown was written");
}

} // namespace

int main(int, char** arguments) {
	GetMutableDefault<UAnimeGamerSettings>()->Address = arguments[1];
	GStubOnWrite = [](FRHITexture* Texture) {
		if (Texture == Shown) {
			WroteShown = true;
		}
	};
	std::thread Render(render);
	int result = 0;
	try {
		play();
	} catch (const std::exception& error) {
		std::printf("failed: %s\n", error.what());
		result = 1;
	}
	Running = false;
	Render.join();
	return result;
}
