// Plays the plugin in a game loop of stubs: driver tcp://HOST:PORT with a live server, driver tcp://HOST:PORT PICTURE with one that
// starts from pictures and offers turns, driver tcp://HOST:PORT FOLDER SERVER_KEY with one that has keys, where client.key_secret is in
// FOLDER. A second thread runs render commands.
#include "UnrealStubs.h"

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

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
		Turn->OnUnderstood.AddLambda([this](const FAnimeGamerUnderstood& Meant) { Understood = Meant; });
		Turn->OnState.AddLambda([this](const FAnimeGamerState&) { ++States; });
		Turn->OnProgress.AddLambda([this](float, float) { ++Steps; });
		Turn->OnFrame.AddLambda([this](UTexture2D* Texture) { Frames += Texture->Resource.TextureRHI->Writes > 0 ? 1 : 0; });
		Turn->OnDone.AddLambda([this](int32 InTurns, float) { Turns = InTurns; });
		Turn->OnError.AddLambda([this](const FString& Code, const FString&, const FString& WhatToDo) {
			Error = Code.Value;
			Remedy = WhatToDo.Value;
		});
		Turn->Activate();
	}
	UAnimeGamerPlayTurn* Turn;
	int States = 0, Steps = 0, Frames = 0, Turns = 0;
	FAnimeGamerUnderstood Understood;
	std::string Error, Remedy;
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

FSubsystemCollectionBase Collection;

UAnimeGamerSubsystem* begin() {
	UAnimeGamerSubsystem* const Subsystem = NewObject<UAnimeGamerSubsystem>();
	GStubWorld = NewObject<UWorld>();
	GStubWorld->Instance = NewObject<UGameInstance>();
	GStubWorld->Instance->Subsystem = Subsystem;
	Subsystem->Initialize(Collection);
	return Subsystem;
}

void start_from_picture(const char* File) {
	UAnimeGamerSubsystem* const Subsystem = begin();
	UAnimeGamerComponent* const Component = NewObject<UAnimeGamerComponent>();
	int Connected = 0;
	Subsystem->OnConnected.AddLambda([&](const FAnimeGamerWelcome&) { ++Connected; });
	Component->BeginPlay(); // it asks for a new game, which the picture's replaces before it is open
	UAnimeGamerGame* const Game = Component->Game;
	std::vector<std::string> Offered;
	Component->OnOffers.AddLambda([&](const TArray<FString>& Now) {
		Offered.clear();
		for (int32 Number = 0; Number < Now.Num(); ++Number) {
			Offered.push_back(Now[Number].Value);
		}
	});
	int Opened = 0;
	std::string Error;
	Game->OnOpened.AddLambda([&](const FString&) { ++Opened; });
	Game->OnError.AddLambda([&](const FString& Code, const FString&, const FString&) { Error = Code.Value; });
	check(Game->StartFromPictureFile(File, "gently wave"), "a start is asked for");
	loop("the game", [&] { return Opened > 0; });
	const FAnimeGamerUnderstood Seen = Game->GetSeen();
	check(Seen.Text.Value.rfind("Mia in a raincoat and Tobo", 0) == 0 && Seen.People.Num() == 2 && Seen.Motion.Value == "run", "what is seen");
	const FAnimeGamerWelcome Welcome = Subsystem->GetWelcome();
	check(Connected == 1 && Welcome.bStartsFromPictures && Welcome.People.Num() == 2 && Welcome.Hours.Num() == 2, "the bundle's words");
	loop("an offer", [&] { return Offered.size() == 1; });
	check(Game->GetOffers().Num() == 1, "it holds");

	Heard heard(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", Game->GetOffers()[0]));
	loop("the end of a clip", [&] { return heard.Turn->Ready; });
	check(Opened == 1 && heard.Turns == 1 && heard.Understood.Motion.Value == "run", "a turn, and what it means");
	loop("the next offer", [&] { return Game->GetOffers().Num() == 1; });

	const FString Token = Game->GetToken();
	check(!Game->StartFromPictureFile("no such file", "gently wave") && Error == "bad_argument", "a file that is none");
	TArray<uint8> NoPicture;
	NoPicture.Add(1);
	check(Game->StartFromPicture(NoPicture, "gently wave"), "a start is asked for");
	loop("its refusal", [&] { return Error == "picture"; });
	check(Game->GetToken().Value == Token.Value, "what is no picture leaves the game");
	Game->Rewind(0);
	loop("the end of the offer", [&] { return Offered.empty(); });
	Subsystem->Deinitialize();
	std::puts("from a picture");
}

void play_with_keys(const char* Folder, const char* ServerKey) {
	UAnimeGamerSettings& Settings = *GetMutableDefault<UAnimeGamerSettings>();
	GStubSavedDir = Folder;
	Settings.ServerKey = ServerKey;
	UAnimeGamerSubsystem* const Subsystem = begin();
	std::string StatusError, Error;
	Subsystem->OnStatus.AddLambda([&](const FAnimeGamerStatus& Status) { StatusError = Status.Error.Value; });
	UAnimeGamerComponent* const Component = NewObject<UAnimeGamerComponent>();
	Component->OnError.AddLambda([&](const FString& Code, const FString&, const FString&) { Error = Code.Value; });
	Component->BeginPlay();
	Subsystem->AskStatus();
	check(StatusError.find("AnimeGamer.key_secret cannot be read; ") != std::string::npos, "the status says that there is no file");
	check(!Component->Say("Mia waves.") && Error == "no_secret_key", "so does the component");
	Heard refused(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia waves."));
	check(refused.Error == "no_secret_key" && refused.Turn->Ready, "and the node");

	Settings.SecretKeyFile = "client.key_secret";
	Heard heard(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia waves."));
	loop("the end of a turn", [&] { return heard.Turn->Ready; });
	if (!heard.Error.empty()) {
		std::printf("%s: %s\n", heard.Error.c_str(), heard.Remedy.c_str());
		return;
	}
	check(heard.Turns == 1 && Component->Game->GetTexture() != nullptr, "a turn, and its picture");
	Subsystem->Deinitialize();
	check(!Component->Say("Mia waves.") && Error == "closed", "a game after the end of its game instance");
	std::puts("with keys");
}

void play() {
	UAnimeGamerSubsystem* const Subsystem = begin();

	UAnimeGamerComponent* const Component = NewObject<UAnimeGamerComponent>();
	Component->BeginPlay();
	Component->OnFrame.AddLambda([](UTexture2D* Texture) { Shown = Texture->Resource.TextureRHI.get(); });
	for (int turn = 1; turn <= 2; ++turn) {
		Heard heard(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia waves."));
		loop("the end of a clip", [&] { return heard.Turn->Ready; });
		check(heard.Error.empty() && heard.Turns == turn && heard.States == 1 && heard.Steps > 0, "a turn");
		check(heard.Frames >= 10, "its frames"); // a slow machine skips some
	}
	std::puts("two turns");

	Heard first(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia dances."));
	loop("a step", [&] { return first.Steps > 0; });
	Heard second(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia sings."));
	check(second.Error == "turn_running" && first.Error.empty(), "a second turn is refused, the first goes on");
	first.Turn->Cancel();
	Heard instead(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, "Game", "Mia sits down."));
	loop("the other turn", [&] { return instead.Turn->Ready; });
	check(first.Error == "cancelled" && instead.Error.empty() && instead.Turns == 3, "say this instead");
	std::puts("say instead");

	// What a game has besides turns.
	UAnimeGamerGame* const Same = Component->Game;
	int Listed = 0, Shared = -1, Exported = 0, Kept = -1;
	std::string Last, Folder, State, Branch;
	Same->OnListed.AddLambda([&](const TArray<FAnimeGamerTurn>& Turns, bool) { Listed = Turns.Num(); Last = Turns[Listed - 1].Instruction.Value; });
	Same->OnBranched.AddLambda([&](const FString& Token, int32 Turns) { Branch = Token.Value; Shared = Turns; });
	Same->OnExported.AddLambda([&](const FString& Where, int32 Turns) { Folder = Where.Value; Exported = Turns; });
	Same->OnRewound.AddLambda([&](int32 Turns) { Kept = Turns; });
	Subsystem->OnStatus.AddLambda([&](const FAnimeGamerStatus& Status) { State = Status.State.Value; });
	Same->List();
	Same->Branch(1);
	Same->Export();
	Subsystem->AskStatus();
	loop("list, branch, export, status", [&] { return Listed > 0 && Shared >= 0 && Exported > 0 && !State.empty(); });
	check(Listed == 3 && Last == "Mia sits down." && Exported == 3 && !Folder.empty() && State == "ready", "list, export, status");
	int Replayed = 0;
	Same->OnDone.AddLambda([&](int32 Turns, float) { Replayed = Turns; });
	check(Same->Replay(1), "a replay is asked for");
	loop("the replay's end", [&] { return Replayed == 3; });
	Same->Rewind(2);
	loop("the rewind", [&] { return Kept == 2; });
	UAnimeGamerGame* const Other = Subsystem->GetGame("Other");
	int OtherTurns = 0;
	Other->OnDone.AddLambda([&](int32 Turns, float) { OtherTurns = Turns; });
	Other->Resume(Branch.c_str());
	check(Shared == 1 && Other->Say("Mia runs."), "a branch is played");
	loop("a turn of the branch", [&] { return OtherTurns == 2; });
	std::puts("list, branch, export, replay, rewind");

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

int main(int count, char** arguments) {
	GetMutableDefault<UAnimeGamerSettings>()->Address = arguments[1];
	GStubOnWrite = [](FRHITexture* Texture) {
		if (Texture == Shown) {
			WroteShown = true;
		}
	};
	std::thread Render(render);
	int result = 0;
	try {
		if (count > 3) {
			play_with_keys(arguments[2], arguments[3]);
		} else if (count > 2) {
			start_from_picture(arguments[2]);
		} else {
			play();
		}
	} catch (const std::exception& error) {
		std::printf("failed: %s\n", error.what());
		result = 1;
	}
	Running = false;
	Render.join();
	return result;
}
