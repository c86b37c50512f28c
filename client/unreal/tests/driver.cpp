// Plays the plugin in a game loop of stubs: driver tcp://HOST:PORT with a live server, driver tcp://HOST:PORT PICTURE with one that
// starts from pictures and offers turns, driver tcp://HOST:PORT chain with a live one that is fast, driver ADDRESS refused with an
// address that is none. A second thread runs render commands.
#include "Engine/Texture2D.h"

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "AnimeGamerGame.h"
#include "AnimeGamerPlayTurn.h"
#include "AnimeGamerSettings.h"
#include "AnimeGamerSubsystem.h"

namespace {

void check(bool holds, const char* what) {
	if (!holds) {
		throw std::runtime_error(what);
	}
}

std::string text(const FString& Text) { return TCHAR_TO_UTF8(*Text); }
FString wide(const std::string& Text) { return FString(UTF8_TO_TCHAR(Text.c_str())); }

/// What one node Play Turn heard. It holds the node no more than a Blueprint does: `ended` when the node was collected.
struct Heard {
	explicit Heard(const TCHAR* Sentence) : Heard(UAnimeGamerPlayTurn::PlayTurn(GStubWorld, TEXT("Game"), Sentence)) {}
	explicit Heard(UAnimeGamerPlayTurn* InTurn) : Turn(InTurn) {
		Turn->OnUnderstood.Listen([this](UTexture2D*, int32, int32, const FString&, const FAnimeGamerTurnEvent& Event) { Understood = Event.Understood; });
		Turn->OnState.Listen([this](UTexture2D*, int32 InNumber, int32, const FString&, const FAnimeGamerTurnEvent&) {
			++States;
			Number = InNumber;
		});
		Turn->OnProgress.Listen([this](UTexture2D*, int32, int32, const FString&, const FAnimeGamerTurnEvent&) { ++Steps; });
		Turn->OnFrame.Listen([this](UTexture2D* Texture, int32 InNumber, int32 Index, const FString&, const FAnimeGamerTurnEvent&) {
			check(Texture != nullptr && InNumber == Number && Index > Last, "a picture of this turn, after the one before");
			++Frames;
			Last = Index;
		});
		Turn->OnDone.Listen([this](UTexture2D*, int32, int32, const FString&, const FAnimeGamerTurnEvent& Event) {
			Turns = Event.Turns;
			if (Then) {
				Then();
			}
		});
		Turn->OnError.Listen([this](UTexture2D*, int32, int32, const FString& Text, const FAnimeGamerTurnEvent& Event) {
			check(!Text.IsEmpty(), "an error has words");
			Error = text(Event.ErrorCode);
			Remedy = text(Event.WhatToDo);
			Understood = Event.Understood;
		});
		Turn->Activate();
	}
	Heard(const Heard&) = delete;
	bool ended() const { return AllObjects().count(Turn) == 0; }

	UAnimeGamerPlayTurn* Turn;
	int States = 0, Steps = 0, Frames = 0, Turns = 0, Number = 0, Last = -1;
	FAnimeGamerUnderstood Understood;
	std::string Error, Remedy;
	std::function<void()> Then; // when it is done
};

std::atomic<bool> Running{true};
int Announced = 0; // OnFrame of the game
std::atomic<int> Drawn{0};    // pictures that a draw has found in the texture
UAnimeGamerGame* Watched = nullptr;

void render() {
	FRHICommandListImmediate List;
	while (true) {
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
		} else if (!Running) {
			return;
		} else {
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
	}
}

// A tick, and its draws: the render thread finds in the texture what On Frame has announced.
void tick() {
	++GFrameCounter;
	FTSTicker::GetCoreTicker().Tick(1.0f / 60.0f);
	CollectGarbage();
	if (Watched != nullptr && Watched->GetTexture() != nullptr) {
		FTextureResource* const Resource = Watched->GetTexture()->GetResource();
		ENQUEUE_RENDER_COMMAND(Draw)([Resource](FRHICommandListImmediate&) { Drawn = Resource->TextureRHI->Writes; });
	}
}

template <typename Until> void loop(const char* what, Until&& until) {
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
	while (std::chrono::steady_clock::now() < end) {
		tick();
		if (until()) {
			return;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(4)); // four times as fast as a game
	}
	throw std::runtime_error(std::string("never came: ") + what);
}

FSubsystemCollectionBase Collection;

template <typename T> T* rooted() {
	T* const Object = NewObject<T>();
	Object->AddToRoot(); // as an actor holds its component, and the engine its world
	return Object;
}

UAnimeGamerSubsystem* begin() {
	UAnimeGamerSubsystem* const Subsystem = NewObject<UAnimeGamerSubsystem>();
	GStubWorld = rooted<UWorld>();
	GStubWorld->Instance = NewObject<UGameInstance>();
	GStubWorld->Instance->Subsystem = Subsystem;
	Subsystem->Initialize(Collection);
	return Subsystem;
}

void start_from_picture(const char* File) {
	UAnimeGamerSubsystem* const Subsystem = begin();
	int Connected = 0;
	Subsystem->OnConnected.Listen([&](const FAnimeGamerWelcome&) { ++Connected; });
	UAnimeGamerGame* const Game = Subsystem->GetGame(TEXT("Game")); // it asks for a new game, which the picture's replaces before it is open
	std::vector<std::string> Offered;
	Game->OnOffers.Listen([&](const TArray<FString>& Now) {
		Offered.clear();
		for (int32 Number = 0; Number < Now.Num(); ++Number) {
			Offered.push_back(text(Now[Number]));
		}
	});
	int Opened = 0;
	std::string Error;
	TArray<FAnimeGamerAnswer> Answers;
	Game->OnOpened.Listen([&](const FString&) { ++Opened; });
	Game->OnError.Listen([&](const FString& Code, const FString&, const FString&, const TArray<FAnimeGamerAnswer>& Why) {
		Error = text(Code);
		Answers = Why;
	});
	check(Game->StartFromPictureFile(wide(File), TEXT("gently wave")), "a start is asked for");
	loop("the game", [&] { return Opened > 0; });
	const FAnimeGamerUnderstood Seen = Game->GetSeen();
	check(text(Seen.Text).rfind("Mia in a raincoat and Tobo", 0) == 0 && Seen.People.Num() == 2 && Seen.Motion == TEXT("run"), "what is seen");
	const FAnimeGamerWelcome Welcome = Subsystem->GetWelcome();
	check(Connected == 1 && Welcome.bStartsFromPictures && Welcome.People.Num() == 2 && Welcome.Hours.Num() == 2, "the bundle's words");
	loop("an offer", [&] { return Offered.size() == 1; });
	check(Game->GetOffers().Num() == 1, "it holds");

	Heard refused(TEXT("Mia explodes."));
	loop("a refusal", [&] { return refused.ended(); });
	check(refused.Error == "not_understood" && refused.Understood.Answers[1].Words[0] == TEXT("explodes"), "the node hears why, in codes");
	check(Answers.Num() == 3 && Answers[1].Value == TEXT("run"), "and so does the game");
	Heard heard(*Game->GetOffers()[0]);
	loop("the end of a clip", [&] { return heard.ended(); });
	check(Opened == 1 && heard.Turns == 1 && heard.Understood.Motion == TEXT("run"), "a turn, and what it means");
	check(heard.Understood.Unknown[0] == TEXT("explodes") && !heard.Understood.Notice.IsEmpty(), "and what does not");
	loop("the next offer", [&] { return Game->GetOffers().Num() == 1; });

	const FString Token = Game->GetToken();
	check(!Game->StartFromPictureFile(TEXT("no such file"), TEXT("gently wave")) && Error == "bad_argument", "a file that is none");
	TArray<uint8> NoPicture;
	NoPicture.Add(1);
	check(Game->StartFromPicture(NoPicture, TEXT("gently wave")), "a start is asked for");
	loop("its refusal", [&] { return Error == "picture"; });
	check(Game->GetToken() == Token, "what is no picture leaves the game");
	Game->Rewind(0);
	loop("the end of the offer", [&] { return Offered.empty(); });
	Subsystem->Deinitialize();
	std::puts("from a picture");
}

// Settings that cannot be meant: each part of the plugin says so.
void be_refused() {
	UAnimeGamerSubsystem* const Subsystem = begin();
	std::string Error;
	UAnimeGamerGame* const Game = Subsystem->GetGame(TEXT("Game"));
	Game->OnError.Listen([&](const FString& Code, const FString&, const FString&, const TArray<FAnimeGamerAnswer>&) { Error = text(Code); });
	check(!Game->Say(TEXT("Mia waves.")) && Error == "invalid", "the game says so");
	Heard refused(TEXT("Mia waves."));
	CollectGarbage();
	check(refused.Error == "invalid" && refused.ended() && refused.Remedy.find("tcp://HOST:PORT") != std::string::npos, "and the node, with what to do");
	Subsystem->Deinitialize();
	std::puts("refused");
}

// Ten nodes, each begun when the one before is done, on a server that is faster than a clip: each hears its own 17 pictures. Then one
// whose game is replaced within its turn, and which stops no other's.
void play_a_chain() {
	UAnimeGamerSubsystem* const Subsystem = begin();
	std::vector<std::unique_ptr<Heard>> Nodes;
	std::function<void()> Next = [&] {
		if (Nodes.size() < 10) {
			Nodes.push_back(std::make_unique<Heard>(TEXT("Mia waves.")));
			Nodes.back()->Then = Next;
		}
	};
	Next();
	std::vector<int> Ends;
	Subsystem->GetGame(TEXT("Game"))->OnClipEnd.Listen([&](int32 Turn) { Ends.push_back(Turn); });
	loop("the end of the tenth clip", [&] { return Nodes.size() == 10 && Nodes.back()->ended(); });
	for (std::size_t n = 0; n < Nodes.size(); ++n) {
		check(Nodes[n]->Frames == 17 && Nodes[n]->Number == static_cast<int>(n) + 1 && Nodes[n]->ended(), "17 pictures of its own, and its end");
	}
	check(Ends == std::vector<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "each clip ends once");
	const std::size_t Objects = AllObjects().size();

	UAnimeGamerGame* const Game = Subsystem->GetGame(TEXT("Game"));
	std::vector<FString> Branches;
	Game->OnBranched.Listen([&](const FString& Token, int32) { Branches.push_back(Token); });
	for (std::size_t n = 1; n <= 2; ++n) {
		Game->Branch(1);
		loop("a branch", [&] { return Branches.size() == n; });
	}
	Game->Resume(Branches[0]);
	Heard left(TEXT("Mia dances."));
	loop("a step", [&] { return left.Steps > 0; });
	Game->Resume(Branches[1]);
	Heard next(TEXT("Mia sings."));
	loop("a step of the other game", [&] { return next.Steps > 0; });
	left.Turn->Cancel();
	loop("both ends", [&] { return left.ended() && next.ended(); });
	check(next.Error.empty() && next.Frames == 17 && left.Error.empty() && left.Frames == 0, "a node stops only its own turn");
	Subsystem->Deinitialize();
	std::printf("a chain of %zu, %zu objects\n", Nodes.size(), Objects);
}

// Looped, paused and faded by the display.
void show() {
	UAnimeGamerSubsystem* const Subsystem = begin();
	UAnimeGamerGame* const Game = Subsystem->GetGame(TEXT("Game"));
	int Frames = 0, Index = -1, Back = 0, Ends = 0;
	Game->OnFrame.Listen([&](UTexture2D*, int32, int32 Now) {
		++Frames;
		Back += Now < Index ? 1 : 0;
		Index = Now;
	});
	Game->OnClipEnd.Listen([&](int32) { ++Ends; });
	Game->SetPlayback(EAnimeGamerPlayback::Loop, 0.0f, 0.5f);
	check(Game->Say(TEXT("Mia waves.")), "a turn");
	loop("the second time", [&] { return Back == 1 && Index > 3; });
	Game->SetPaused(true);
	const int Before = Frames;
	for (int n = 0; n < 20; ++n) {
		tick();
	}
	check(Frames == Before && Ends == 1, "a pause");
	Game->SetPaused(false);
	check(Game->Say(TEXT("Mia sings.")), "another turn");
	loop("a fade", [&] { return Game->GetShownTurn() == 2 && Game->GetBlend() > 0.2f && Game->GetBlend() < 0.9f; });
	check(Game->GetUnderTexture() != nullptr && Game->GetUnderTexture() != Game->GetTexture(), "drawn over the clip before");
	loop("the end of the fade", [&] { return Game->GetBlend() >= 1.0f; });
	UAnimeGamerGame* const Other = Subsystem->GetGame(TEXT("Other"));
	Other->SetPlayback(EAnimeGamerPlayback::Loop);
	check(Other->Say(TEXT("Tofi runs.")), "another game's turn");
	loop("all of its clip", [&] { return Other->GetShownIndex() == 16; });
	check(Game->Say(TEXT("Mia sits.")), "a turn while both games keep a clip");
	loop("its first picture", [&] { return Game->GetShownTurn() == 3; });
	Game->Resume(Game->GetToken());
	check(Game->GetTexture() == nullptr && Game->GetShownTurn() == 0 && Game->GetShownIndex() == -1, "a resumed game shows nothing yet");
	Subsystem->Deinitialize();
	std::puts("looped, paused, faded");
}

void play() {
	UAnimeGamerSubsystem* const Subsystem = begin();

	UAnimeGamerGame* const Same = Watched = Subsystem->GetGame(TEXT("Game"));
	Same->OnFrame.Listen([](UTexture2D*, int32, int32) { ++Announced; });
	for (int turn = 1; turn <= 2; ++turn) {
		Heard heard(TEXT("Mia waves."));
		loop("the end of a clip", [&] { return heard.ended(); });
		check(heard.Error.empty() && heard.Turns == turn && heard.States == 1 && heard.Steps > 0, "a turn");
		check(heard.Frames == 17 && heard.Number == turn, "its frames");
	}
	loop("the last draw", [&] { return Drawn == Announced; });
	std::puts("two turns");

	Heard first(TEXT("Mia dances."));
	loop("a step", [&] { return first.Steps > 0; });
	Heard second(TEXT("Mia sings."));
	check(second.Error == "turn_running" && first.Error.empty(), "a second turn is refused, the first goes on");
	first.Turn->Cancel();
	Heard instead(TEXT("Mia sits down."));
	first.Turn->Cancel();
	loop("the other turn", [&] { return instead.ended(); });
	check(first.Error == "cancelled" && instead.Error.empty() && instead.Turns == 3, "say this instead");
	std::puts("say instead");

	// What a game has besides turns.
	int Listed = 0, Shared = -1, Kept = -1;
	std::string Last, Branch;
	Same->OnListed.Listen([&](const TArray<FAnimeGamerTurn>& Turns, bool) { Listed = Turns.Num(); Last = text(Turns[Listed - 1].Instruction); });
	Same->OnBranched.Listen([&](const FString& Token, int32 Turns) { Branch = text(Token); Shared = Turns; });
	Same->OnRewound.Listen([&](int32 Turns) { Kept = Turns; });
	Same->List();
	Same->Branch(1);
	loop("list, branch", [&] { return Listed > 0 && Shared >= 0; });
	check(Listed == 3 && Last == "Mia sits down.", "list");
	int Replayed = 0;
	Same->OnDone.Listen([&](int32 Turns, float) { Replayed = Turns; });
	check(Same->Replay(1), "a replay is asked for");
	loop("the replay's end", [&] { return Replayed == 3; });
	Same->Rewind(2);
	loop("the rewind", [&] { return Kept == 2; });
	UAnimeGamerGame* const Other = Subsystem->GetGame(TEXT("Other"));
	int OtherTurns = 0;
	Other->OnDone.Listen([&](int32 Turns, float) { OtherTurns = Turns; });
	Other->Resume(wide(Branch));
	check(Shared == 1 && Other->Say(TEXT("Mia runs.")), "a branch is played");
	loop("a turn of the branch", [&] { return OtherTurns == 2; });
	std::puts("list, branch, replay, rewind");

	UTexture2D* const Picture = Same->GetTexture();
	check(Subsystem->GetGame(TEXT("Game")) == Same && Picture != nullptr, "the next level has the same game, and its picture");
	const FString Token = Same->GetToken();
	std::puts("next level");

	// The second Play, within a turn of the first.
	Same->Say(TEXT("Mia jumps."));
	Subsystem->Deinitialize();
	Watched = nullptr; // it is collected
	UAnimeGamerSubsystem* const Again = NewObject<UAnimeGamerSubsystem>();
	GStubWorld->Instance->Subsystem = Again;
	Again->Initialize(Collection);
	UAnimeGamerGame* const Game = Again->GetGame(TEXT("Game"));
	bool Opened = false;
	Game->OnOpened.Listen([&](const FString& Resumed) { Opened = Resumed == Token; });
	Game->Resume(Token);
	loop("the resumed game", [&] { return Opened; });
	Again->Deinitialize();
	std::puts("second play");
}

} // namespace

int main(int count, char** arguments) {
	GetMutableDefault<UAnimeGamerSettings>()->Address = wide(arguments[1]);
	std::thread Render(render);
	int result = 0;
	try {
		if (count > 2 && std::string(arguments[2]) == "refused") {
			be_refused();
		} else if (count > 2 && std::string(arguments[2]) == "chain") {
			play_a_chain();
			show();
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
